"""The sinfo command."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fleet.hostlist import compress, expand
from simulator.slurm.arguments import Options, Parsed, parse
from simulator.slurm.controller import Controller
from simulator.slurm.records import CPUS, MEMORY_MB, SlurmNode
from simulator.slurm.reply import UNREACHABLE, Reply, failure
from simulator.slurm.words import Column, clock_text, parse_format, table

_OPTIONS = Options(
    "sinfo",
    takes=frozenset({"format", "nodes", "partition", "states"}),
    flags=frozenset({"noheader", "Node", "list-reasons", "long", "all", "exact", "responding", "summarize"}),
    short={"h": "noheader", "N": "Node", "o": "format", "n": "nodes", "p": "partition", "t": "states"}
    | {"R": "list-reasons", "l": "long", "a": "all", "e": "exact", "r": "responding", "s": "summarize"},
)
_DEFAULT = "%9P %.5a %.10l %.6D %.6t %N"
_LONG_NODES = "{0} %.6D %.9P %11T %.4c %.8z %.6m %.8d %.6w %.8f %20E"
_BASE = {"DOWN": 1, "IDLE": 2, "ALLOCATED": 3, "MIXED": 5}


@dataclass(frozen=True, slots=True)
class _Row:
    """Nodes that look alike in the columns that are shown; none at all where nothing matched."""

    nodes: tuple[SlurmNode, ...]
    partition: str
    controller: Controller


def _first(row: _Row) -> SlurmNode:
    return row.nodes[0]


def _state(row: _Row, compact: bool) -> str:
    return _first(row).sinfo_state(compact) if row.nodes else "n/a"


def _reason_user(row: _Row) -> str:
    return _first(row).reason_by if row.nodes and _first(row).reason else "Unknown"


def _reason_time(row: _Row) -> str:
    if not row.nodes or not _first(row).reason:
        return "Unknown"
    return clock_text(row.controller.timers.clock, _first(row).reason_at)


def _features(row: _Row) -> str:
    return (",".join(_first(row).features) if row.nodes else "") or "(null)"


def _partition(row: _Row) -> str:
    return row.partition + ("*" if row.partition == row.controller.partitions[0] else "")


def _cpus(row: _Row) -> str:
    used = sum(node.cpus_allocated for node in row.nodes)
    out = sum(CPUS for node in row.nodes if (node.down or node.drain) and not node.running)
    total = CPUS * len(row.nodes)
    return f"{used}/{total - used - out}/{out}/{total}"


_COLUMNS: dict[str, Column[_Row]] = {
    "N": Column("NODELIST", lambda row: compress(node.name for node in row.nodes)),
    "n": Column("HOSTNAMES", lambda row: compress(node.name for node in row.nodes)),
    "D": Column("NODES", lambda row: str(len(row.nodes))),
    "T": Column("STATE", lambda row: _state(row, compact=False)),
    "t": Column("STATE", lambda row: _state(row, compact=True)),
    "E": Column("REASON", lambda row: (_first(row).reason if row.nodes else None) or "none"),
    "H": Column("TIMESTAMP", _reason_time),
    "u": Column("USER", _reason_user),
    "P": Column("PARTITION", _partition),
    "R": Column("PARTITION", lambda row: row.partition),
    "a": Column("AVAIL", lambda _: "up"),
    "l": Column("TIMELIMIT", lambda _: "infinite"),
    "G": Column("GRES", lambda row: f"gpu:h100:{_first(row).machine.gpus}" if row.nodes else "(null)"),
    "c": Column("CPUS", lambda _: str(CPUS)),
    "C": Column("CPUS(A/I/O/T)", _cpus),
    "m": Column("MEMORY", lambda _: str(MEMORY_MB)),
    "z": Column("S:C:T", lambda _: f"2:{CPUS // 4}:2"),
    "d": Column("TMP_DISK", lambda _: "0"),
    "w": Column("WEIGHT", lambda _: "1"),
    "f": Column("AVAIL_FEATURES", _features),
    "b": Column("ACTIVE_FEATURES", _features),
    "v": Column("VERSION", lambda _: "22.05.8"),
}


def sinfo(controller: Controller, arguments: list[str]) -> Reply:
    """Raises UsageError, ValueError."""
    parsed = parse(arguments, _OPTIONS)
    if not controller.reachable:
        return failure(f"slurm_load_partitions: {UNREACHABLE}\n")
    single, reasons = parsed.has("Node"), parsed.has("list-reasons")
    text = parsed.values.get("format") or _default(controller, parsed)
    letters = [cell.letter for cell in parse_format(text)[1] if cell.letter in _COLUMNS]
    rows: list[_Row] = []
    for partition in _partitions(controller, parsed):
        nodes = [node for node in controller.nodes_of(partition) if _wanted(node, parsed)]
        if reasons:
            nodes = [node for node in nodes if node.reason]
        rows += _rows(controller, partition, nodes, letters, single)
        if not nodes and not single and not reasons and not parsed.has("nodes"):
            rows.append(_Row((), partition, controller))
    if single:
        rows.sort(key=lambda row: _first(row).name)
    header = "" if not parsed.has("long") else controller.timers.clock.wall().strftime("%a %b %d %H:%M:%S %Y\n")
    return Reply(0, header + table(text, _COLUMNS, rows, not parsed.has("noheader"), "sinfo"))


def _default(controller: Controller, parsed: Parsed) -> str:
    if parsed.has("list-reasons"):
        return "%20E %9u %19H %N"
    if not parsed.has("Node"):
        return _DEFAULT
    width = max([8, *map(len, controller.nodes)]) + 1
    return _LONG_NODES.format(f"%{width}N") if parsed.has("long") else f"%{width}N %.6D %.9P %6t"


def _partitions(controller: Controller, parsed: Parsed) -> list[str]:
    asked = parsed.values.get("partition")
    chosen = controller.partitions if asked is None else asked.split(",")
    return [partition for partition in chosen if partition in controller.partitions]


def _wanted(node: SlurmNode, parsed: Parsed) -> bool:
    if parsed.has("nodes") and node.name not in expand(parsed.values["nodes"]):
        return False
    if parsed.has("responding") and node.not_responding:
        return False
    if not parsed.has("states"):
        return True
    words = {node.sinfo_state(True).rstrip("*"), node.sinfo_state(False).rstrip("*"), *node.state.lower().split("+")}
    if node.drain:
        words.add("drain")
    if node.not_responding:
        words |= {"no_respond", "not_responding"}
    return any(part.lower() in words for part in parsed.values["states"].split(","))


def _rows(
    controller: Controller, partition: str, nodes: Sequence[SlurmNode], letters: list[str], single: bool
) -> list[_Row]:
    groups: dict[tuple[str, ...], list[SlurmNode]] = {}
    for node in sorted(nodes, key=_rank, reverse=True):
        alone = _Row((node,), partition, controller)
        looks = tuple(_COLUMNS[letter].value(alone) for letter in letters if letter not in "NnDC")
        groups.setdefault((*looks, node.name if single else ""), []).append(node)
    return [_Row(tuple(sorted(group, key=lambda node: node.name)), partition, controller) for group in groups.values()]


def _rank(node: SlurmNode) -> int:
    """Slurm's number for a state, by which sinfo sorts."""
    flags = 0x200 * node.drain + 0x400 * bool(node.completing) + 0x800 * node.not_responding
    return _BASE[node.base_state] + flags
