"""Reader for `sacct --env-vars`: the environment that a batch job was submitted with.

Source of the shape: sacct and slurmdbd 22.05.8: a title, a rule of dashes, then one `NAME=value` a line, or NONE where
nothing is kept.
"""

from __future__ import annotations

import re

_RULE = re.compile(r"^-{20,}\s*$", re.MULTILINE)
_NAME = re.compile(r"^([A-Za-z_][A-Za-z0-9_]*|BASH_FUNC_[^=\s]+)=(.*)$", re.DOTALL)


def read_job_environment(text: str) -> dict[str, str] | None:
    """The variables; None where the text holds none. A line without a name continues the value before it.

    The first of each name counts: a value of several lines may look like further variables.
    """
    rule = _RULE.search(text)
    if rule is None:
        return None
    found: dict[str, str] = {}
    current: str | None = None
    for line in text[rule.end() :].replace("\r\n", "\n").strip("\n").split("\n"):
        match = _NAME.match(line)
        if match is not None:
            current = match[1] if match[1] not in found else None
            if current is not None:
                found[current] = match[2]
        elif current is not None:
            found[current] += f"\n{line}"
    return found or None
