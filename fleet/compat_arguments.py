"""Versions as a person types them: what is no version is refused with the nearest right form, and not guessed.

A word without a digit ("latest") is a name that the catalogue does not know, so its verdict is unknown. What has
digits must be a version as a whole: "12,2" is not CUDA 12.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from datetime import date

from fleet.catalog_data import Catalog
from fleet.drivers import parse_cuda, parse_driver
from fleet.errors import ConfigurationError

_SHOWN = 60
_DRIVER = re.compile(
    r"(?:[a-z][a-z0-9+]*[-_ ](?:[a-z][a-z0-9+]*[-_ ])*)?(?:[0-9]:)?[rv]?[3-9][0-9]{2}(?:\.[0-9]{1,3}){0,2}"
    r"(?:[-~+_ ][a-z0-9.+~:_-]*)?",
    re.IGNORECASE,
)
_CUDA = re.compile(
    r"(?:cuda(?:[-_ ][a-z]+)*[-_ ]?)?v?[1-9][0-9]?(?:[.-][0-9]{1,2}(?:\.[0-9]{1,3})?)?(?:[-~+][a-z0-9.+~:_-]*)?",
    re.IGNORECASE,
)


def driver_argument(option: str, text: str, catalog: Catalog) -> str:
    """The text without blanks around it. Raises ConfigurationError with the nearest right form."""
    known = [str(number) for number in catalog.branches]
    return _checked(
        option, text, "580, R580 or 535.104.05", lambda t: bool(_DRIVER.fullmatch(t) and parse_driver(t)), known
    )


def cuda_argument(option: str, text: str, catalog: Catalog) -> str:
    """The text without blanks around it. Raises ConfigurationError with the nearest right form."""
    known = [".".join(map(str, kit.cuda.parts[:2])) for kit in catalog.toolkits]
    return _checked(option, text, "13, 12.2 or 12.2.140", lambda t: bool(_CUDA.fullmatch(t) and parse_cuda(t)), known)


def name_argument(option: str, text: str) -> str:
    """A name that is not empty. Raises ConfigurationError."""
    plain = text.strip()
    if not plain:
        raise ConfigurationError(f"{option} is empty")
    return plain


def day_argument(option: str, text: str) -> date:
    """A day as 2026-11-30, and no other spelling. Raises ConfigurationError."""
    if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text.strip()):
        try:
            return date.fromisoformat(text.strip())
        except ValueError:
            pass  # no such day
    raise ConfigurationError(f"{option} takes a day as 2026-11-30, not {_quoted(text)}")


def _checked(option: str, text: str, form: str, fits: Callable[[str], bool], known: Iterable[str]) -> str:
    plain = name_argument(option, text)
    if fits(plain) or not any(character.isdigit() for character in plain):
        return plain
    near = next((guess for guess in _guesses(plain, known) if fits(guess)), None)
    hint = f"did you mean {near!r}?" if near else f"it takes a version as {form}"
    raise ConfigurationError(f"{option} takes no version like {_quoted(plain)}; {hint}")


def _guesses(text: str, known: Iterable[str]) -> Iterable[str]:
    """What may have been meant, the likeliest first."""
    short = text[:_SHOWN].casefold()
    yield re.sub(r"\s*[.,;:/_\s]+\s*", ".", short).strip(".")
    numbers = re.findall(r"[0-9]+", short)
    for size in (3, 2, 1):
        yield ".".join(numbers[:size])
    names = list(dict.fromkeys(known))
    yield from difflib.get_close_matches(short, names, n=1, cutoff=0.5)
    bare = {name.replace(".", ""): name for name in names}
    yield from (bare[digits] for digits in ["".join(numbers)] if digits in bare)


def _quoted(text: str) -> str:
    return repr(text[:_SHOWN]) + ("…" if len(text) > _SHOWN else "")
