"""Taking version strings apart. `fleet.versions` says how the parts order.

The shapes are those of the firmware inventories and tools of NVIDIA, Dell, HPE, Lenovo, Supermicro, Intel and
Broadcom; each pattern's comment shows one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

_NO_VERSION = (
    "na|n/a|none|null|(null)|nil|unknown|undefined|unavailable|unspecified|invalid|error|err|tbd|default|"
    "default string|not available|not applicable|not specified|not supported|not present|not programmed|"
    "unknown error|no version|to be filled by o.e.m"
)
_PLACEHOLDERS = frozenset(_NO_VERSION.split("|"))
_NOISE_NAMES = frozenset({"", "v", "ver", "version", "rev", "revision", "fw", "firmware", "bios"})

_KEYS = re.compile(r"_n(\d\d)$", re.I)  # 01.04.0026_n04
_NVM = re.compile(r"^(\S+)\s+(0x[0-9a-f]{8}(?:\s+\S+)?)$", re.I)  # 3.50 0x800016DC
_DATE = re.compile(
    r"\(?\b(\d{1,2}/\d{1,2}/\d{4}|\d{4}[-/]\d\d[-/]\d\d|"
    r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)\w* \d{1,2},? \d{4})\b\)?",
    re.I,
)  # (08/11/2022), Sep 04 2022
_PRERELEASE = re.compile(r"[-_.~ ]?(?<![a-z])(dev|snapshot|alpha|beta|preview|pre|rc)[-_. ]?(\d*)$", re.I)
_DESCRIBE = re.compile(r"-g([0-9a-f]{7,40})(?:-dirty)?$", re.I)  # git describe: 2.14.0-12-gdeadbee
_BUILD_ID = re.compile(r"(?:^|[-_ ])gcid[-_ ]?\d+$|^[0-9a-f]{40}$|^(?=\w*[a-f])(?=\w*\d)[0-9a-f]{10,64}$", re.I)
_BYTES = re.compile(r"^(?:0x[0-9a-f]{2}\s+)+0x[0-9a-f]{2}$", re.I)  # 0x00 0x10 0x01 0x0f
_VBIOS = re.compile(r"^[0-9a-f]{2}(?:\.[0-9a-f]{2}){4}$", re.I)  # 96.00.A5.00.01
_INFOROM = re.compile(r"^([a-z]\d{3})((?:\.\d+){2,})$", re.I)  # G548.0201.00.06
_EROT = re.compile(r"^0\d\.\d\d\.\d{4}(?:\.\d{4})?$")  # 01.03.0262.0000
_DRIVER = re.compile(r"^(?:\d:)?(\d{3}\.\d{2,3}(?:\.\d{1,2})?)(?:[-~+](\S+))?$")  # 580.105.08-0ubuntu1
_LENOVO = re.compile(r"^([0-9a-z]*\d[0-9a-z]*[a-z])-(\d+\.\d+\S*)$", re.I)  # 22J-1.51
_VERSION_WORD = re.compile(r"^(.*?\S)??\s*\b(?:v|ver\.?|version:?|rev\.?)\s*(?=\d)", re.I)  # A42 v2.60, Ver 1.3
_NAMED = re.compile(
    r"^([a-z][a-z0-9]*(?:[-_ ][a-z][a-z0-9]*)*?)(?:[-_ ]|(?<=[a-z]))(?=\d+(?:[-._:]|$))", re.I
)  # GB200Nvl-24.10-9
_FIELD = re.compile(r"^(?:[0-9]+(?:[a-z]{1,2}[0-9]*)?|[0-9a-f]+|[a-z])$", re.I)


@dataclass(frozen=True, slots=True)
class Version:
    """The parts of one string. `text` is the cleaned whole, folded; `unordered` ids can only be equal."""

    text: str
    name: str
    family: str
    fields: tuple[str, ...] = ()
    prerelease: tuple[str, int] | None = None
    keys: str = ""
    build: str = ""
    date: str = ""
    unordered: bool = False

    @property
    def marks(self) -> tuple[str, ...]:
        """What tells two images of one version apart."""
        return (self.keys, self.build, self.date)


@lru_cache(maxsize=4096)
def parse(text: str | None) -> Version | None:
    """The parts of a version string; None for a placeholder (`NA`, `-*`, `0`, all zeros, all F, blanks)."""
    clean = re.sub(r"\s+", " ", (text or "").replace("\0", " ")).strip().strip("\"'").strip()
    if _is_placeholder(clean):
        return None
    clean = _ascii_of_hex(clean)
    if _BUILD_ID.search(clean) or len(clean) > 200:
        return Version(clean.lower(), _shape(clean), "id", unordered=True)
    if _BYTES.match(clean):
        return Version(clean.lower(), "", "bytes", tuple(byte[2:].lower() for byte in clean.split()))
    return _parse_parts(clean)


def _is_placeholder(clean: str) -> bool:
    folded = clean.lower().strip("[]<>!?.*-_ ")
    bare = re.sub(r"[.\s:_-]|0x", "", folded)
    erased = len(bare) >= 4 and set(bare) == {"f"}
    return not folded or folded in _PLACEHOLDERS or set(bare) == {"0"} or erased


def _shape(clean: str) -> str:
    """What two ids of one kind share: `buildbrain-gcid-#`, `#a#`."""
    folded = re.sub(r"\d+", "#", clean.lower())
    return folded if "gcid" in folded else re.sub(r"[a-z]+", "a", folded)


def _ascii_of_hex(clean: str) -> str:
    """FPGAs give their version as the hex of its ASCII bytes: 312e3041 is 1.0A."""
    if not re.fullmatch(r"(?:0x)?(?:[0-9a-f]{2}){3,16}", clean, re.I):
        return clean
    data = bytes.fromhex(clean.removeprefix("0x").removeprefix("0X"))
    decoded = data.rstrip(b"\0").decode("latin-1")
    return decoded if re.fullmatch(r"[0-9A-Za-z]+(?:\.[0-9A-Za-z]+)+", decoded) else clean


def _parse_parts(clean: str) -> Version:
    rest, keys, build, date = clean, "", "", ""
    if match := _NVM.match(rest):
        rest, build = match[1], match[2].lower()
    if match := _DATE.search(rest):
        rest, date = (rest[: match.start()] + " " + rest[match.end() :]).strip(), match[1].lower()
        rest = re.sub(r"\b(?:bios )?date:?\s*", "", rest, flags=re.I).strip()
    if match := _KEYS.search(rest):
        rest, keys = rest[: match.start()], match[1]
    if match := _DESCRIBE.search(rest):
        rest, build = rest[: match.start()], match[1].lower()
    if "+" in rest:
        rest, _, build = rest.partition("+")
    prerelease = None
    if match := _PRERELEASE.search(rest):
        rest, prerelease = rest[: match.start()], (match[1].lower(), int(match[2] or 0))
    family, name, fields, revision = _family(rest)
    if family == "opaque":
        return Version(clean.lower(), _shape(clean), family, unordered=True)
    return Version(clean.lower(), name, family, fields, prerelease, keys, build or revision, date)


def _family(rest: str) -> tuple[str, str, tuple[str, ...], str]:
    """Family, name, fields and package revision of a text without its marks."""
    if _VBIOS.match(rest):
        return "vbios", "", tuple(rest.lower().split(".")), ""
    if match := _INFOROM.match(rest):
        return "inforom", match[1].lower(), tuple(match[2][1:].split(".")), ""
    if _EROT.match(rest):
        return "erot", "", tuple(rest.split(".")), ""
    if match := _DRIVER.match(rest):
        return "driver", "", tuple(match[1].split(".")), (match[2] or "").lower()
    name = ""
    if match := _LENOVO.match(rest):
        name, rest = match[1], match[2]
    elif match := _VERSION_WORD.match(rest):
        name, rest = match[1] or "", rest[match.end() :]
    elif match := _NAMED.match(rest):
        name, rest = match[1], rest[match.end() :]
    name = re.sub(r"[\s_-]+", "-", name.strip(" -_:").lower())
    fields = tuple(re.split(r"[._:-]", rest.strip()))
    bare_number = len(fields) == 1 and len(fields[0]) > 4
    if bare_number or not all(map(_FIELD.match, fields)) or not fields[0][0].isdigit():
        return "opaque", "", (), ""
    return "numbered", "" if name in _NOISE_NAMES else name, fields, ""
