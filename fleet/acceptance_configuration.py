"""Settings of GPUs that are not their model's: to be mended, and the test repeated. Never a verdict on hardware.

A setting is held against what the driver says is the board's default, and against most GPUs of the same model: nothing
is demanded that the fleet itself does not have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fleet.acceptance_parts import Part, PartFinding, PartKind
from fleet.findings import Action, Finding, Severity
from fleet.gpu_settings import GpuSettings, NodeGpuSettings

_WATTS_APART = 1.0  # a limit is set in whole watts
_ENOUGH = 3  # GPUs, to call something usual
_COMPARED = ("ecc", "clocks_mhz", "mig_mode", "power_limit_watts")


@dataclass(frozen=True, slots=True)
class UsualSettings:
    """What more than half of the GPUs of a model have, by setting, and with how many have it as text."""

    values: Mapping[str, object]
    words: Mapping[str, str]


def usual_settings(nodes: Iterable[NodeGpuSettings]) -> UsualSettings:
    """Of all GPUs of one model; a setting on which no majority agrees is not among it."""
    gpus = [gpu for node in nodes for gpu in node.gpus]
    values: dict[str, object] = {}
    words: dict[str, str] = {}
    for name in _COMPARED:
        told = [value for gpu in gpus if (value := getattr(gpu, name)) is not None]
        if len(told) < _ENOUGH:
            continue
        (value, count), *_ = Counter(told).most_common(1)
        if 2 * count > len(told):
            values[name], words[name] = value, f"{_said(name, value)} on {count} of {len(told)} GPUs of this model"
    return UsualSettings(values, words)


def setting_findings(
    node: str, settings: NodeGpuSettings | None, parts: Sequence[Part], usual: UsualSettings
) -> tuple[PartFinding, ...]:
    """What must be mended on each GPU of a node; nothing where its settings were not read."""
    if settings is None:
        return ()
    return tuple(PartFinding(_part(node, gpu, parts), found) for gpu in settings.gpus for found in _of_gpu(gpu, usual))


def _part(node: str, gpu: GpuSettings, parts: Sequence[Part]) -> Part:
    """The GPU in the node's list, by its index or UUID; else one of its own."""
    gpus = [part for part in parts if part.kind is PartKind.GPU]
    names = {str(gpu.index), gpu.uuid}
    found = [part for part in gpus if part.slot in names or (part.serial and part.serial == gpu.uuid)]
    return found[0] if len(found) == 1 else Part(node, PartKind.GPU, str(gpu.index))


def _of_gpu(gpu: GpuSettings, usual: UsualSettings) -> Iterator[Finding]:
    limit, default = gpu.power_limit_watts, gpu.power_default_watts
    below_default = limit is not None and default is not None and limit <= default - _WATTS_APART
    as_usual = limit is not None and limit == usual.values.get("power_limit_watts")
    if below_default and not as_usual:
        text = "it may draw less than its model is made for"
        yield _finding(gpu, "power_limit_watts", f"power limit {limit:g} W, the board's default {default:g} W", text)
    for name in _COMPARED:
        have, most = getattr(gpu, name), usual.values.get(name)
        if have is None or most is None or have == most or (name == "power_limit_watts" and below_default):
            continue
        if name == "power_limit_watts" and default is not None and have == default:
            continue  # this one is right; most of the others are not
        yield _finding(gpu, name, f"{_said(name, have)}; {usual.words[name]}", "it is set otherwise than its like")
    if gpu.ecc is False and usual.values.get("ecc") is not True:
        yield _finding(gpu, "ecc", "ECC disabled", "errors of its memory would not be seen, and it looks faster")
    if gpu.ecc is not None and gpu.ecc_pending is not None and gpu.ecc != gpu.ecc_pending:
        text = "the change is made at the next reset of the GPU"
        yield _finding(gpu, "ecc_pending", f"{_said('ecc', gpu.ecc)}, pending {_said('ecc', gpu.ecc_pending)}", text)
    if gpu.mig_mode and usual.values.get("mig_mode") is not False:
        yield _finding(gpu, "mig_mode", "MIG enabled", "tests see a slice of the GPU, not the GPU")


def _finding(gpu: GpuSettings, name: str, evidence: str, text: str) -> Finding:
    subject = f"gpu {gpu.index}"
    return Finding(subject, f"setting.{name}", Severity.WARNING, Action.FIX_CONFIGURATION, evidence, text)


def _said(name: str, value: object) -> str:
    if name in ("ecc", "mig_mode"):
        return f"{'ECC' if name == 'ecc' else 'MIG'} {'enabled' if value else 'disabled'}"
    if name == "clocks_mhz" and isinstance(value, tuple):
        return f"application clocks {value[0]} MHz, memory {value[1]} MHz"
    return f"power limit {value:g} W" if isinstance(value, float) else f"{name} {value}"
