"""Reading a TPM's structures: big-endian numbers, and byte strings that say their own size first."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A blob that is not what it should be: `what` it should be, and `why` it is not."""

    what: str
    why: str

    def __str__(self) -> str:
        return f"the {self.what} cannot be read: {self.why}"


class Malformed(ValueError):
    """Ends a parse; every public parser hands its `unreadable` back as a value."""

    def __init__(self, unreadable: Unreadable) -> None:
        super().__init__(str(unreadable))
        self.unreadable = unreadable


class Cursor:
    """A position in a blob. Every method raises Malformed where the blob does not go on as asked."""

    def __init__(self, blob: bytes, what: str) -> None:
        self._blob = blob
        self._what = what
        self._at = 0

    def fault(self, why: str) -> Malformed:
        """What to raise where a value makes no sense."""
        return Malformed(Unreadable(self._what, why))

    def take(self, size: int, name: str) -> bytes:
        """The next `size` bytes."""
        left = len(self._blob) - self._at
        if size > left:
            raise self.fault(f"it ends after {len(self._blob)} bytes, in its {name} ({size} bytes, {left} are there)")
        self._at += size
        return self._blob[self._at - size : self._at]

    def number(self, size: int, name: str) -> int:
        """An unsigned number of `size` bytes."""
        return int.from_bytes(self.take(size, name), "big")

    def sized(self, name: str, most: int) -> bytes:
        """A byte string behind its size (TPM2B), of at most `most` bytes."""
        size = self.number(2, f"{name}'s size")
        if size > most:
            raise self.fault(f"its {name} would be {size} bytes long; {most} is the most")
        return self.take(size, name)

    def rest(self) -> bytes:
        """All that is left."""
        return self.take(len(self._blob) - self._at, "rest")

    def end(self) -> None:
        """Nothing may be left."""
        left = len(self._blob) - self._at
        if left:
            raise self.fault(f"{left} bytes too many follow it")


def sized(data: bytes) -> bytes:
    """`data` behind its size, as TPM2B structures are written."""
    return len(data).to_bytes(2, "big") + data
