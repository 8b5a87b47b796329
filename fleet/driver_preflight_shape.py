"""One finding of a driver change's preflight."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PreflightFinding:
    """`code` is a stable word for machines ("headers.missing"), `advice` what to do next."""

    code: str
    text: str
    blocking: bool
    advice: str

    def __str__(self) -> str:
        return f"{self.text}: {self.advice}" if self.advice else self.text


def blocks(code: str, text: str, advice: str = "") -> PreflightFinding:
    return PreflightFinding(code, text, True, advice)


def notes(code: str, text: str, advice: str = "") -> PreflightFinding:
    return PreflightFinding(code, text, False, advice)
