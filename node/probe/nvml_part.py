"""What a few NVML calls told of one GPU, with the reason for everything that they did not tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

    from .nvml_attributes import Call

FUNCTION_NOT_FOUND = 13


class Failure(NamedTuple):
    """Why a call gave nothing; `code` is NVML's, None where the answer makes no sense."""

    code: int | None
    reason: str


def attempt(nvml: ModuleType, read: Callable[[], object]) -> object:
    """What `read` returns, or a Failure."""
    try:
        return read()
    except nvml.NVMLError as error:
        return failure(nvml, error.value)
    except (AttributeError, nvml.NVMLLibraryMismatchError):
        return failure(nvml, FUNCTION_NOT_FOUND)
    except ValueError:
        return Failure(None, "not readable as text")


def call(part: Part, function: str, *args: object) -> object:
    """What the function says of the part's GPU, or a Failure."""
    return attempt(part.nvml, lambda: getattr(part.nvml, function)(part.handle, *args))


def failure(nvml: ModuleType, code: int) -> Failure:
    return Failure(code, f"NVML {code}: {nvml.NVMLError(code)}")


class Part:
    """`known` by attribute; `unknown` is {reason: [attributes]}."""

    def __init__(self, nvml: ModuleType, handle: object = None) -> None:
        self.nvml = nvml
        self.handle = handle
        self.known: dict[str, object] = {}
        self.unknown: dict[str, list[str]] = {}

    def ask(self, wanted: Call) -> None:
        """Ask the first function that the library has."""
        names = wanted.names.split()
        before = () if self.handle is None else (self.handle,)
        for function in wanted.functions.split():

            def read(function: str = function) -> object:
                value = getattr(self.nvml, function)(*before, *wanted.args)
                return value if wanted.convert is None else wanted.convert(value)

            value = attempt(self.nvml, read)
            if not isinstance(value, Failure) or value.code != FUNCTION_NOT_FOUND:
                break
        self.keep(names, value)

    def fill(self, names: str, read: Callable[[], object]) -> None:
        """Fill `names` from what `read` returns: a value, or a tuple of one for each name."""
        self.keep(names.split(), attempt(self.nvml, read))

    def keep(self, names: Sequence[str], value: object) -> None:
        if isinstance(value, Failure):
            self.miss(names, value.reason)
            return
        values = value if isinstance(value, tuple) and len(names) > 1 else (value,)
        for name, one in zip(names, values):  # noqa: B905  Python 3.8 has no `strict`
            if one is None:
                self.miss((name,), "no value")
            else:
                self.known[name] = one.decode("utf-8", "replace") if isinstance(one, bytes) else one

    def miss(self, names: Sequence[str], reason: str) -> None:
        self.unknown.setdefault(reason, []).extend(names)
