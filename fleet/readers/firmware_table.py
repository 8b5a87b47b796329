"""The table of `nvfwupd show_version`."""

from __future__ import annotations

from fleet.findings import Action, Explanation, Finding, Severity, Subject
from fleet.nvfwupd import NvfwupdRow, plain_version, read_nvfwupd_table
from fleet.readers.plain_text import LineStart

_HEADER = LineStart(r"[^\S\n]*AP Name\b.*\bSys Version\b")


def recognises(text: str) -> bool:
    """Whether the table's heading is in the text."""
    return "AP Name" in text and bool(_HEADER.search(text))


def explain(text: str) -> Explanation:
    """Each device: ours is the comparison, not the tool's "Up-To-Date"."""
    try:
        table = read_nvfwupd_table(text)
    except ValueError as error:
        return Explanation("nvfwupd", unknown=(f"the devices: {error}",))
    subjects = [Subject(row.name, _facts(row)) for row in table.rows]
    if table.model:
        subjects.insert(
            0, Subject("system", {"model": f"{table.model} (the tool's word, from the FRU; it may be wrong)"})
        )
    findings = [finding for row in table.rows if (finding := _finding(row)) is not None]
    unknown = [f"{row.name}: {_missing(row)}" for row in table.rows if row.equal is None]
    if table.connected is False:
        unknown.insert(0, "everything that the BMC did not answer: the tool was not connected")
    return Explanation("nvfwupd", tuple(subjects), tuple(findings), tuple(unknown))


def _missing(row: NvfwupdRow) -> str:
    return "its running version" if row.system is None else "what it should run: the package has nothing for it"


def _facts(row: NvfwupdRow) -> dict[str, str]:
    facts = {"running": _shown(row.system), "package": _shown(row.package)}
    facts |= {"staged": row.staged} if row.staged else {}
    said = {True: "yes", False: "no"}.get(row.tool_says_current) if row.tool_says_current is not None else None
    return facts | ({"tool says current": said} if said else {})


def _shown(version: str | None) -> str:
    if version is None:
        return "unknown"
    plain = plain_version(version)
    return version if plain == version else f"{plain} (written {version})"


def _finding(row: NvfwupdRow) -> Finding | None:
    evidence = f"Sys Version={row.system} Pkg Version={row.package} Up-To-Date={row.tool_says_current}"
    if row.equal is False and row.tool_says_current:
        text = "the tool calls it up to date, and it runs another version than the package holds"
        return Finding(row.name, "firmware.differs_from_package", Severity.INFO, Action.NONE, evidence, text)
    if row.equal is False:
        text = "runs another version than the package holds"
        return Finding(row.name, "firmware.outdated", Severity.WARNING, Action.UPDATE_FIRMWARE, evidence, text)
    if row.equal and row.tool_says_current is False:
        text = "the tool calls it outdated, and it runs what the package holds"
        return Finding(row.name, "firmware.current", Severity.INFO, Action.NONE, evidence, text)
    return None
