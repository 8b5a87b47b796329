"""What an Xid means for the node: the catalogue's answer, and what the line's own text adds to it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from fleet.findings import Action, Severity
from fleet.health_catalog import xid_rule
from fleet.health_limits import recovery_action

if TYPE_CHECKING:
    from fleet.readers.xid import XidEvent

Verdict = tuple[Severity, Action, str]

_WORDS_OF: Mapping[str, frozenset[int]] = {
    r"CTX SWITCH TIMEOUT": frozenset({109}),
    r"fallen off the bus": frozenset({79}),
    r"waiting for RPC response": frozenset({119}),
    r"Row Remapp|Page Retirement|Row remapping event": frozenset({63, 64}),
    r"^Contained:": frozenset({94}),
    r"^Uncontained": frozenset({95}),
    r"recovery action changed": frozenset({154}),
    r"MMU Fault": frozenset({31}),
    r"Graphics (?:SM|Exception)": frozenset({13}),
}
_REMAP_FAILED = re.compile(
    r"all reserved rows|blacklisting failed|retirement fail|remap\w* fail|fail\w* to (?:remap|retire)", re.I
)
_TO_ACTIVATE = re.compile(r"to activate|marked for remapping|pending", re.IGNORECASE)


def judge(event: XidEvent) -> Verdict:
    """Severity, action and explanation of one event."""
    rule = xid_rule(event.code)
    if rule is None:
        return Severity.WARNING, Action.INVESTIGATE, _text(event, "not in the catalogue, so no action is automatic")
    severity, action, note = _special(event, rule.severity, rule.action)
    if event.cleared_by and action is not Action.REPLACE_PART:
        severity = min(severity, Severity.WARNING, key=list(Severity).index)
        action = Action.NONE if severity is Severity.INFO else Action.WATCH
        note = f"{note}; ended by {event.cleared_by}" if note else f"ended by {event.cleared_by}"
    return severity, action, _text(event, rule.description, note)


def _special(event: XidEvent, severity: Severity, action: Action) -> Verdict:
    """What the text of some codes changes in the catalogue's answer, and a note."""
    if event.code in (63, 64):
        return _remapping(event, severity, action)
    if event.code in range(144, 151):
        return _nvlink(event, severity, action)
    if event.code == 154:
        return _recovery(event, severity, action)
    if event.code == 94 and re.search(r"\bRST:\s*Yes", event.text):
        return Severity.ERROR, Action.RESET_GPU, "contained, but the driver asks for a reset"
    if event.code == 13 and (places := _repeated_places(event)):
        note = f"different processes faulted at {', '.join(places)}: suspect the hardware"
        return Severity.WARNING, Action.RUN_DIAGNOSTICS, note
    if event.code == 74:
        return severity, action, "check the link; replace the part if it comes again"
    if event.code == 79:
        return (
            severity,
            action,
            "the GPU is lost until the node restarts or is power-cycled; return it if it comes again",
        )
    if event.code == 48:
        return severity, action, "see whether a row or page could be remapped before the GPU goes back to work"
    return severity, action, ""


def _remapping(event: XidEvent, severity: Severity, action: Action) -> Verdict:
    kind = "retired page" if re.search(r"Page|blacklist", event.text, re.IGNORECASE) else "remapped row"
    if event.code == 64:
        if _REMAP_FAILED.search(event.text):
            return Severity.ERROR, Action.REPLACE_PART, f"{kind}: failed; return it once field diagnostics confirm"
        return severity, action, f"{kind}: failed; return the GPU if it fails again after a reset"
    if _TO_ACTIVATE.search(event.text):
        return (
            severity,
            Action.RESET_GPU,
            f"{kind}: takes effect after a reset, which can wait for the node's next drain",
        )
    return severity, action, f"{kind}: done"


def _nvlink(event: XidEvent, severity: Severity, action: Action) -> Verdict:
    fault = event.nvlink
    if fault is None:
        return severity, action, "its registers cannot be read"
    link = f"{fault.unit}, link {'unknown' if fault.link is None else fault.link}"
    rule = fault.rule
    if rule is None:
        if fault.fatal:
            return Severity.ERROR, Action.RESET_GPU, f"{link}: fatal; no published rule for its registers"
        return severity, action, f"{link}: no published rule for its registers"
    then = f"{link}: {rule.severity.lower()} by the published rule; if it stays, {rule.investigatory or 'nothing more'}"
    if rule.resolution == "RESET_GPU":
        return Severity.ERROR, Action.RESET_GPU, then
    if rule.resolution == "IGNORE" and "atal" in rule.severity and not rule.severity.startswith("Non"):
        return Severity.ERROR, Action.INVESTIGATE, then
    if rule.resolution == "IGNORE":
        watch = rule.investigatory != "IGNORE"
        return Severity.INFO, Action.WATCH if watch else Action.NONE, then
    return Severity.WARNING, Action.INVESTIGATE, f"{then}; the recovery action of Xid 154 decides"


def _recovery(event: XidEvent, severity: Severity, action: Action) -> Verdict:
    if event.recovery is None:
        return severity, action, "the new recovery action cannot be read"
    wanted = recovery_action(event.recovery[1])
    if wanted is None:
        return severity, action, f"recovery action 0x{event.recovery[1]:x} is not known"
    if wanted.action is Action.NONE:
        return Severity.INFO, Action.NONE, "nothing is asked for any more"
    return Severity.ERROR, wanted.action, f"the driver asks for: {wanted.name}"


def _repeated_places(event: XidEvent) -> list[str]:
    processes = Counter(place for place, _ in event.places)
    return sorted(place for place, count in processes.items() if count > 1)


def contradiction(event: XidEvent) -> str | None:
    """A text if the line's words are those of another Xid; the code stands all the same."""
    for words, codes in _WORDS_OF.items():
        if event.code not in codes and not event.implied and re.search(words, event.text):
            others = " or ".join(str(code) for code in sorted(codes))
            return f"line {event.line}: its code is Xid {event.code}, its words are those of Xid {others}"
    return None


def _text(event: XidEvent, *notes: str) -> str:
    """One sentence or two: what it is, what is known of the process, how often."""
    said = [f"Xid {event.code}: {'; '.join(note for note in notes if note)}."]
    if event.implied:
        said.append("The line itself gives no Xid.")
    if contradiction(event):
        said.append("Its words are those of another Xid.")
    if event.mig_instance is not None:
        said.append(f"MIG GPU instance {int(event.mig_instance)}.")
    if event.process or event.pid is not None:
        pid = f" (pid {event.pid})" if event.pid is not None else ""
        said.append(
            f"Process {event.process or 'without a known name'}{pid}{' and others' if len(event.pids) > 1 else ''}."
        )
    if event.count > 1:
        said.append(f"Seen {event.count} times.")
    return " ".join(said)
