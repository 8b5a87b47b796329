"""Command lines as getopt_long reads them: options anywhere, long ones abbreviated, short ones joined."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


class UsageError(Exception):
    """A command line that cannot be read, in getopt's words."""


@dataclass(frozen=True, slots=True)
class Options:
    """`takes` are the long names that need a value; `flags` need none. `short` maps letters to long names."""

    command: str
    takes: frozenset[str]
    flags: frozenset[str]
    short: Mapping[str, str]


@dataclass
class Parsed:
    values: dict[str, str] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)

    def has(self, name: str) -> bool:
        return name in self.values


def parse(arguments: list[str], options: Options) -> Parsed:
    """Raises UsageError in getopt's words."""
    parsed, rest = Parsed(), list(arguments)
    while rest:
        word = rest.pop(0)
        if word == "--":
            parsed.words += rest
            break
        if word.startswith("--"):
            _long(word, rest, options, parsed)
        elif word.startswith("-") and word != "-":
            _short(word[1:], rest, options, parsed)
        else:
            parsed.words.append(word)
    return parsed


def _long(word: str, rest: list[str], options: Options, parsed: Parsed) -> None:
    given, equals, value = word[2:].partition("=")
    known = options.takes | options.flags
    near = [given] if given in known else [name for name in sorted(known) if name.startswith(given)]
    if len(near) != 1:
        what = "is ambiguous" if near else None
        text = f"option '{word}' {what}" if what else f"unrecognized option '--{given}'"
        raise UsageError(f"{options.command}: {text}")
    name = near[0]
    if name in options.takes and not equals:
        if not rest:
            raise UsageError(f"{options.command}: option '--{name}' requires an argument")
        value = rest.pop(0)
    parsed.values[name] = value


def _short(letters: str, rest: list[str], options: Options, parsed: Parsed) -> None:
    while letters:
        letter, letters = letters[0], letters[1:]
        name = options.short.get(letter)
        if name is None:
            raise UsageError(f"{options.command}: invalid option -- '{letter}'")
        if name not in options.takes:
            parsed.values[name] = ""
            continue
        if not letters and not rest:
            raise UsageError(f"{options.command}: option requires an argument -- '{letter}'")
        parsed.values[name] = letters or rest.pop(0)
        return
