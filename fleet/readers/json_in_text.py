"""A JSON document inside a text: log lines before it, prompts behind it, and the end cut off."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_ATTEMPTS = 200
_CUT_ATTEMPTS = 20  # in a text of up to _SMALL characters; in a longer one fewer, and one at least
_SMALL = 2**20
_TIMES = 20
_DEPTH = 60
_START = re.compile(r'\{(?=\s*["}])|\[(?=\s*[\[{"\]\d-])')
_LINE_START = re.compile(r"(?:^|(?<=[}\]]))[^\S\n]*(?:\{|\[(?=\s*[\[{\"\]]))", re.MULTILINE)
_CLOSERS = {"{": "}", "[": "]"}
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+', re.DOTALL)


@dataclass(frozen=True, slots=True)
class FoundJson:
    """The document; `complete` is False where its end was missing and the rest was closed by us."""

    value: object
    complete: bool


def find_json(text: str, wanted: Callable[[object], bool]) -> FoundJson | None:
    """The first document in `text` that is wanted, whole or as far as it goes; None where there is none."""
    decoder = json.JSONDecoder(strict=False, parse_int=_int)
    place = cut = looked_at = 0
    for _ in range(_ATTEMPTS):
        found = _START.search(text, place)
        if found is None or looked_at > _TIMES * len(text):
            break
        try:
            value, place = decoder.raw_decode(text, found.start())
        except (ValueError, RecursionError):
            place = found.start() + 1
            cut += 1
            looked_at += len(text) - place  # a text without its closing quote is walked over to the end
            value = _closed(text[found.start() :]) if cut <= max(_CUT_ATTEMPTS * _SMALL // len(text), 1) else None
            if value is not None and wanted(value):
                return FoundJson(value, complete=False)
            continue
        if wanted(value):
            return FoundJson(value, complete=True)
    return None


def all_json(text: str) -> Iterator[object]:
    """Every whole document that begins at the start of a line, in order; what is between them is passed over."""
    decoder = json.JSONDecoder(strict=False, parse_int=_int)
    place = broken = 0
    while broken < _ATTEMPTS and (found := _LINE_START.search(text, place)) is not None:
        try:
            value, place = decoder.raw_decode(text, found.end() - 1)
        except (ValueError, RecursionError):
            place, broken = found.end(), broken + 1
            continue
        yield value


def _closed(text: str) -> object:
    """What the beginning of a document says as far as it is whole; None where that is nothing."""
    stack: list[str] = []
    safe: tuple[int, str] | None = None
    end = 0
    for token in _TOKEN.finditer(text):
        if text[end : token.start()].strip():
            break
        end, word = token.end(), token[0]
        if word in _CLOSERS:
            stack.append(word)
            if len(stack) > _DEPTH:
                return None
            safe = (end, _closing(stack))
        elif word in ("}", "]"):
            if not stack or _CLOSERS[stack.pop()] != word:
                break
            safe = (end, _closing(stack))
            if not stack:
                break
        elif word == ",":
            safe = (token.start(), _closing(stack))
    if safe is None:
        return None
    try:
        value: object = json.loads(text[: safe[0]] + safe[1], strict=False, parse_int=_int)
    except (ValueError, RecursionError):
        return None
    return value


def _int(digits: str) -> int | float:
    """A whole number; one of more digits than any counter has becomes a float, infinite where it is too large."""
    return int(digits) if len(digits) <= 40 else float(digits)


def _closing(stack: list[str]) -> str:
    return "".join(_CLOSERS[opener] for opener in reversed(stack))
