"""Measuring as a step of a visit: done once, kept in the journal with its raw output, and read back from there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, runtime_checkable

from adapters.evidence import EvidenceFolder, evidence_folder
from blocks.clients import ledger_url
from blocks.fleet import Fleet
from fleet.canary_settings import CanarySettings
from fleet.errors import ConfigurationError, FleetError
from fleet.measure_record import MeasuredWith, Measurements
from fleet.measures import Phase, Sample
from fleet.sample_json import measurements_from_json, measurements_to_json
from ledger import Entry, Ledger, Outcome
from tasks.measuring import Bench, measure_node
from tasks.visit import Visit

_STEP = "measure:"
_SUDO = ("sudo", "-n")
_INLET_TRIES = 2  # readings of a BMC that fail before it is left alone for the rest of the measuring


@runtime_checkable
class ReadsInlet(Protocol):
    """A BMC whose client reads the air at the inlet."""

    def read_inlet_celsius(self) -> float | None:
        """°C; None where it shows none."""
        ...


def measure_step(phase: Phase) -> str:
    """The name of the journal step in which a node is measured."""
    return f"{_STEP}{phase.value}"


def measure_phase(
    visit: Visit, phase: Phase, runs: int, settings: CanarySettings, before: MeasuredWith | None = None
) -> Measurements:
    """Every benchmark of the settings, `runs` times, on a node that is drained; what was measured already is returned.

    `before` is what the node was measured with earlier, so that the two compare; by default what this operation used
    in an earlier phase. A runner that died while it measured has left nothing: all of it is measured again. Raises
    NotDrained or LeaseLost where the node has work again or is not ours, ConfigurationError (HostKeyChanged,
    CredentialsRejected, or evidence that cannot be kept).
    """
    name = measure_step(phase)
    last = visit.last(name)
    if last is not None and last.outcome is Outcome.DONE:
        return _read(last)
    before = before or measured_with(visit.ledger, visit.operation, visit.name)
    visit.check_undisturbed()
    with visit.step(name, {"runs": runs}) as evidence:
        measurements = measure_node(_bench(visit), phase, runs, settings, before)
        evidence |= measurements_to_json(measurements)
    return measurements


def measured_samples(ledger: Ledger, operation: str) -> tuple[Sample, ...]:
    """All that the operation measured: node by node in its order, for each its phases in theirs.

    Raises ConfigurationError where what was kept cannot be read.
    """
    rows = ledger.operations.node_rows(operation)
    return tuple(
        sample for row in rows for entry in _measured(ledger, operation, row.node) for sample in _read(entry).samples
    )


def measured_with(ledger: Ledger, operation: str, node: str) -> MeasuredWith | None:
    """What the operation measured the node with, in its newest phase; None where it did not measure it.

    Raises ConfigurationError as `measured_samples`.
    """
    entries = list(_measured(ledger, operation, node))
    return _read(entries[-1]).measured_with if entries else None


def _measured(ledger: Ledger, operation: str, node: str) -> Iterator[Entry]:
    """The last finished try of each phase, in the phases' order."""
    for phase in Phase:
        last = ledger.journal.last(operation, node, measure_step(phase))
        if last is not None and last.outcome is Outcome.DONE:
            yield last


def _read(entry: Entry) -> Measurements:
    try:
        return measurements_from_json(dict(entry.result))
    except ValueError as error:
        text = f"{entry.operation}: what was measured on {entry.node} ({entry.step}) cannot be read by this version"
        raise ConfigurationError(text) from error


def _bench(visit: Visit) -> Bench:
    seen = visit.look().nodes.get(visit.name)
    return Bench(
        node=visit.name,
        host=visit.fleet.host(visit.node),
        clock=visit.fleet.clock,
        store=evidence_store(visit.fleet),
        gpus=None if seen is None else seen.gpus,
        inlet=_inlet(visit),
        say=visit.say,
        prefix=_SUDO if visit.fleet.spec().drivers.sudo else (),
    )


def evidence_store(fleet: Fleet) -> EvidenceFolder:
    """Where raw output is kept: beside the ledger's file, else beside the fleet file."""
    folder = fleet.folder()
    return EvidenceFolder(evidence_folder(ledger_url(fleet.spec().ledger, folder), folder))


def _inlet(visit: Visit) -> Callable[[], float | None]:
    """Reads the inlet; a BMC that fails is not asked each time: it may be slow, or count refused logins."""
    failed = 0

    def read() -> float | None:
        nonlocal failed
        if failed >= _INLET_TRIES:
            return None
        try:
            bmc = visit.bmc
            return bmc.read_inlet_celsius() if isinstance(bmc, ReadsInlet) else None
        except ConfigurationError:
            failed = _INLET_TRIES
        except FleetError:
            failed += 1
        return None

    return read
