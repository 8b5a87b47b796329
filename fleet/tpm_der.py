"""As much of DER as certificates need. It is lenient on purpose: see fleet/tpm_certificate.py."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from fleet.tpm_bytes import Cursor

BOOLEAN, INTEGER, BIT_STRING, OCTET_STRING, OID = 0x01, 0x02, 0x03, 0x04, 0x06
UTC_TIME, GENERALIZED_TIME, SEQUENCE, SET = 0x17, 0x18, 0x30, 0x31

_TEXTS = {0x0C: "utf-8", 0x13: "ascii", 0x14: "latin-1", 0x16: "ascii", 0x1C: "utf-32-be", 0x1E: "utf-16-be"}
_MOST_OID = 64


@dataclass(frozen=True, slots=True)
class Element:
    """`whole` is `body` with its tag and length."""

    tag: int
    body: bytes
    whole: bytes


def next_element(cursor: Cursor) -> Element:
    """The element at the cursor. Raises Malformed."""
    tag = cursor.number(1, "tag")
    if tag & 0x1F == 0x1F:
        raise cursor.fault("it has a tag of more than one byte")
    head = cursor.take(1, "length")
    size = head[0]
    if size >= 0x80:
        count = size & 0x7F
        if not 1 <= count <= 4:
            raise cursor.fault("it has a length that DER does not allow")
        more = cursor.take(count, "length")
        head, size = head + more, int.from_bytes(more, "big")
    body = cursor.take(size, "contents")
    return Element(tag, body, bytes([tag]) + head + body)


def elements(data: bytes, what: str) -> Iterator[Element]:
    """The elements that `data` consists of. Raises Malformed."""
    cursor, left = Cursor(data, what), len(data)
    while left > 0:
        element = next_element(cursor)
        left -= len(element.whole)
        yield element


def first(data: bytes, what: str) -> Element:
    """The element that `data` begins with. Raises Malformed."""
    return next_element(Cursor(data, what))


def inside(element: Element, tag: int, what: str) -> list[Element]:
    """What is in a SEQUENCE or SET. Raises Malformed where `element` has another tag."""
    if element.tag != tag:
        raise Cursor(b"", what).fault(f"tag 0x{element.tag:02x} where 0x{tag:02x} must be")
    return list(elements(element.body, what))


def oid(element: Element, what: str) -> str:
    """ "1.2.840.113549". Raises Malformed."""
    body = element.body
    if element.tag != OID or not 1 <= len(body) <= _MOST_OID or body[-1] & 0x80:
        raise Cursor(b"", what).fault("an object identifier that is none")
    numbers, value = [], 0
    for byte in body:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(value)
            value = 0
    top = min(numbers[0] // 40, 2)
    return ".".join(map(str, (top, numbers[0] - 40 * top, *numbers[1:])))


def whole_number(element: Element, what: str) -> int:
    """An INTEGER. Raises Malformed."""
    if element.tag != INTEGER or not element.body:
        raise Cursor(b"", what).fault("a number that is none")
    return int.from_bytes(element.body, "big", signed=True)


def bits(element: Element, what: str) -> bytes:
    """The bytes of a BIT STRING, first bit first. Raises Malformed."""
    if element.tag != BIT_STRING or not element.body or element.body[0] > 7:
        raise Cursor(b"", what).fault("a bit string that is none")
    return element.body[1:]


def text(element: Element) -> str:
    """Any of the string types; what is no text in its own encoding is shown with U+FFFD."""
    return element.body.decode(_TEXTS.get(element.tag, "latin-1"), errors="replace")


def moment(element: Element, what: str) -> datetime:
    """UTCTime (1950 to 2049) or GeneralizedTime, in UTC. Raises Malformed."""
    written = element.body.decode("ascii", errors="replace")
    if element.tag == UTC_TIME:
        written = ("19" if written[:2] >= "50" else "20") + written
    elif element.tag != GENERALIZED_TIME:
        raise Cursor(b"", what).fault("a date that is none")
    try:
        return datetime.strptime(written, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
    except ValueError as error:
        raise Cursor(b"", what).fault(f"a date that is none: {written[:20]!r}") from error
