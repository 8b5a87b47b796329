"""How each acceptance test is judged: its place in the order, what its values are of, and what can slow them.

The commands and their parsers are not here: a test is known by its id alone ("node/gpu/hbm_bandwidth").
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from fleet.acceptance_parts import PartKind, Stage
from fleet.errors import ConfigurationError
from fleet.inventory_rows import nearest
from fleet.measures import Better


class CauseKind(StrEnum):
    """What a shortfall comes from."""

    CONTAMINATION = "contamination"  # something else ran on the part while it was measured
    CONFIGURATION = "configuration"  # a setting or software that is not as it must be
    COOLING = "cooling"
    POWER = "power"
    LINK = "link"
    MEMORY = "memory"
    NODE = "node"  # the node as a whole: all its parts are slow alike
    PLACE = "place"  # the slot: it is slow on most nodes of this model
    PART = "part"  # nothing else explains it, and everything that could was looked at
    UNKNOWN = "unknown"


_K = CauseKind
_GPU_WORK = frozenset({_K.CONTAMINATION, _K.CONFIGURATION, _K.COOLING, _K.POWER, _K.MEMORY})
_GPU_TRAFFIC = frozenset({_K.CONTAMINATION, _K.CONFIGURATION, _K.COOLING, _K.POWER, _K.LINK})
_NETWORK = frozenset({_K.CONTAMINATION, _K.CONFIGURATION, _K.COOLING, _K.LINK})
_HOST = frozenset({_K.CONTAMINATION, _K.CONFIGURATION, _K.COOLING, _K.POWER, _K.MEMORY})


@dataclass(frozen=True, slots=True)
class CohortRule:
    """When a part is an outlier among its like. Shares of the cohort's median, or, `additive`, in the measure's unit.

    `margin`: a shortfall that is accepted however sure it is. `loss`: one that must be found with chance `power`, or
    the comparison judges nothing. `noise`: the most that healthy parts of one model are assumed to scatter (standard
    deviation); a cohort that surely scatters more is judged by its own scatter alone. `alpha`: how often a cohort in
    which nothing is wrong may have an outlier, all its parts together. `fewest`: values of a cohort.
    """

    margin: float = 0.03
    loss: float = 0.08
    noise: float = 0.01
    alpha: float = 0.01
    power: float = 0.95
    fewest: int = 4
    additive: bool = False


@dataclass(frozen=True, slots=True)
class AcceptanceRule:
    """How one test is judged.

    `measure` is the name under which limits stand in the catalogue, "" of a test that only finds faults: it passes a
    part that its own report proves, and nothing else. `cohort` None: its values are not compared between parts.
    `slowed_by` are the causes that can explain a shortfall. `under_gpu_conditions`: throttling, heat, power and other
    processes of GPUs are read with it, and a throttled value is none; `judges_conditions` turns that round for a test
    of exactly these. `power_bound`: it runs at the power cap, which then says nothing. `runs` are its repetitions.
    """

    id: str
    stage: Stage
    kind: PartKind
    measure: str = ""
    unit: str = ""
    better: Better = Better.HIGHER
    cohort: CohortRule | None = None
    slowed_by: frozenset[CauseKind] = frozenset()
    under_gpu_conditions: bool = False
    judges_conditions: bool = False
    power_bound: bool = False
    runs: int = 1


_RATE = CohortRule()
# Under the power cap GPUs of one model differ by their silicon: arXiv 2208.11035 found 8 % between V100s on average.
_CAPPED = CohortRule(noise=0.02, loss=0.12)
_NETWORK_RATE = CohortRule(noise=0.015, loss=0.1)
_HOST_RATE = CohortRule(noise=0.02, loss=0.15, margin=0.05)
_HEAT = CohortRule(margin=8.0, loss=15.0, noise=3.0, additive=True)


def _gpu_rate(id: str, measure: str, slowed_by: frozenset[CauseKind], unit: str = "GB/s") -> AcceptanceRule:
    stage, kind = Stage.PERFORMANCE, PartKind.GPU
    return AcceptanceRule(id, stage, kind, measure, unit, Better.HIGHER, _RATE, slowed_by, under_gpu_conditions=True)


def _capped(id: str, stage: Stage, measure: str) -> AcceptanceRule:
    return AcceptanceRule(
        id=id,
        stage=stage,
        kind=PartKind.GPU,
        measure=measure,
        unit="GFLOP/s",
        cohort=_CAPPED,
        slowed_by=_GPU_WORK,
        under_gpu_conditions=True,
        power_bound=True,
    )


def _count(id: str, kind: PartKind, measure: str, unit: str, stage: Stage = Stage.VALIDATION) -> AcceptanceRule:
    return AcceptanceRule(id, stage, kind, measure, unit, Better.LOWER)


def _rate(
    id: str, kind: PartKind, measure: str, unit: str, cohort: CohortRule, slowed_by: frozenset[CauseKind]
) -> AcceptanceRule:
    return AcceptanceRule(id, Stage.PERFORMANCE, kind, measure, unit, Better.HIGHER, cohort, slowed_by)


_ALL_REDUCE = AcceptanceRule(
    id="node/nccl/all_reduce",
    stage=Stage.PERFORMANCE,
    kind=PartKind.NODE,
    measure="all_reduce",
    unit="GB/s",
    cohort=_RATE,
    slowed_by=_GPU_TRAFFIC,
    under_gpu_conditions=True,
)
_THERMALS = AcceptanceRule(
    id="node/gpu/thermals",
    stage=Stage.STRESS,
    kind=PartKind.GPU,
    measure="gpu_temperature",
    unit="C",
    better=Better.LOWER,
    cohort=_HEAT,
    slowed_by=frozenset({CauseKind.COOLING, CauseKind.CONTAMINATION}),
    under_gpu_conditions=True,
    judges_conditions=True,
    power_bound=True,
)

STATE = AcceptanceRule("node/state", Stage.SANITY, PartKind.NODE)
"""What the readers find on the node by looking at it; judged of every node, planned or not."""

RULES: tuple[AcceptanceRule, ...] = (
    STATE,
    AcceptanceRule("node/bom", Stage.SANITY, PartKind.NODE),
    AcceptanceRule("node/bios", Stage.SANITY, PartKind.NODE),
    AcceptanceRule("node/kernel", Stage.SANITY, PartKind.NODE),
    AcceptanceRule("node/gpu/pcie_link", Stage.SANITY, PartKind.GPU),
    AcceptanceRule("node/gpu/nvlink", Stage.SANITY, PartKind.GPU),
    AcceptanceRule("node/gpu/diag_1", Stage.SANITY, PartKind.GPU),
    AcceptanceRule("node/gpu/diag_2", Stage.VALIDATION, PartKind.GPU),
    AcceptanceRule("node/gpu/diag_3", Stage.VALIDATION, PartKind.GPU),
    AcceptanceRule("node/gpu/diag_4", Stage.STRESS, PartKind.GPU),
    AcceptanceRule("node/gpu/memory_patterns", Stage.VALIDATION, PartKind.GPU),
    _count("node/gpu/ecc_dram_correctable", PartKind.GPU, "ecc_dram_correctable", "count"),
    _count("node/gpu/ecc_sram_correctable", PartKind.GPU, "ecc_sram_correctable", "count"),
    _count("node/gpu/ecc_sram_uncorrectable", PartKind.GPU, "ecc_sram_uncorrectable", "count"),
    _count("node/gpu/rows_remapped", PartKind.GPU, "rows_remapped_uncorrectable", "rows"),
    _count("node/gpu/row_remap_pending", PartKind.GPU, "row_remap_pending", "count"),
    _count("node/gpu/row_remap_failed", PartKind.GPU, "row_remap_failed", "count"),
    _count("node/nic/link_flaps", PartKind.NIC, "ib_link_flaps_24h", "events"),
    AcceptanceRule("node/dimm/errors", Stage.VALIDATION, PartKind.DIMM),
    AcceptanceRule("node/disk/health", Stage.VALIDATION, PartKind.DISK),
    _gpu_rate("node/gpu/hbm_bandwidth", "hbm_bandwidth", _GPU_WORK),
    _gpu_rate("node/gpu/dcgm_memory_bandwidth", "dcgm_memory_bandwidth", _GPU_WORK, "MB/s"),
    _gpu_rate("node/gpu/host_to_device", "host_to_device", _GPU_TRAFFIC),
    _gpu_rate("node/gpu/device_to_host", "device_to_host", _GPU_TRAFFIC),
    _gpu_rate("node/gpu/peer_to_peer", "peer_to_peer", _GPU_TRAFFIC),
    _ALL_REDUCE,
    _rate("pair/nccl/all_reduce", PartKind.NODE, "all_reduce_nodes", "GB/s", _NETWORK_RATE, _NETWORK),
    _rate("node/nic/ib_write_bw", PartKind.NIC, "ib_write_bw", "Gb/s", _NETWORK_RATE, _NETWORK),
    _rate("node/nic/ib_write_bw_gdr", PartKind.NIC, "ib_write_bw_gdr", "Gb/s", _NETWORK_RATE, _NETWORK),
    _rate("node/cpu/gemm", PartKind.NODE, "cpu_gemm", "GFLOP/s", _HOST_RATE, _HOST),
    _rate("node/memory/bandwidth", PartKind.NODE, "memory_bandwidth", "GB/s", _HOST_RATE, _HOST),
    _rate("node/disk/read", PartKind.DISK, "disk_read", "GB/s", _HOST_RATE, _HOST),
    _capped("node/gpu/gemm", Stage.PERFORMANCE, "gemm"),
    _capped("node/gpu/targeted_stress", Stage.STRESS, "dcgm_targeted_stress"),
    _capped("node/gpu/sustained_gemm", Stage.STRESS, "gemm_sustained"),
    _THERMALS,
)
"""The tests that are known by name. An operator's own are judged by a rule of their own beside them."""


def rule_named(id: str) -> AcceptanceRule:
    """The rule of a test. Raises ConfigurationError that names the nearest one for an id that is not known."""
    found = next((rule for rule in RULES if rule.id == id), None)
    if found is None:
        raise ConfigurationError(f"no acceptance test {id!r}; {nearest(id, [rule.id for rule in RULES])}")
    return found


def ordered(rules: Iterable[AcceptanceRule]) -> tuple[AcceptanceRule, ...]:
    """In the order in which they are run and judged: by stage, within one as they were given.

    Raises ConfigurationError for an id that is there twice.
    """
    listed = tuple(rules)
    ids = [rule.id for rule in listed]
    twice = sorted({id for id in ids if ids.count(id) > 1})
    if twice:
        raise ConfigurationError(f"acceptance test {', '.join(twice)} is there twice")
    return tuple(sorted(listed, key=lambda rule: rule.stage))  # stable
