"""PCIe links as `lspci -vv` prints them: what a device can, what runs, and whether that is a fault.

"(downgraded)" stands behind most links of an idle server. A GPU or fast NIC lowers its speed when idle; a width that
is too small never is normal for them, and a root port or a management NIC says nothing about a GPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from fleet.findings import Action, Explanation, Finding, Severity, Subject
from fleet.readers.plain_text import LineStart, any_of, evidence, plain_lines

KIND = "lspci"


@dataclass(frozen=True, slots=True)
class PcieLink:
    """One device with a link. `address` and `device` are None where the text is an excerpt; speeds are GT/s."""

    address: str | None
    device: str | None
    max_gt_s: float | None
    max_width: int | None
    speed_gt_s: float | None
    width: int | None
    speed_downgraded: bool
    width_downgraded: bool
    line: str
    root_port: bool = False

    @property
    def is_gpu(self) -> bool | None:
        """None where the text does not name the device and it could be one."""
        if self.device is not None:
            return bool(re.search(r"(?:3D|VGA|Display).*NVIDIA|NVIDIA.*(?:\[Tesla|GPU|GeForce)", self.device))
        small = self.max_width is not None and self.max_width <= 4
        return False if self.root_port or small else None


_LISTED = LineStart(r"(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7] (?:[A-Z3][\w .-]{1,80})(?: \[[0-9a-f]{4}\])?: ")
_HEAD = re.compile(r"^((?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]) (\S.*)$")
_CAPABLE = re.compile(r"LnkCap:.*?Speed ([\d.]+)GT/s, Width x(\d+)")
_RUNS = re.compile(
    r"LnkSta:\s*Speed (?:([\d.]+)GT/s|unknown)(?: \((\w+)\))?, Width x(\d+)(?: \((\w+)\))?", re.IGNORECASE
)


def recognises(text: str) -> bool:
    """Is there a link's state of lspci, or its list of devices?"""
    if any_of(("LnkSta:", "LnkCap:"), text) and re.search(r"\bLnk(?:Sta|Cap):\s", text):
        return True
    return _LISTED.search(text) is not None


def read_lspci(text: str) -> tuple[PcieLink, ...]:
    """Every link whose state is printed, in order."""
    links = []
    address = device = None
    capable: re.Match[str] | None = None
    root = False
    for line in plain_lines(text):
        head, cap, runs = _HEAD.match(line), _CAPABLE.search(line), _RUNS.search(line)
        if head:
            address, device, capable, root = head[1], head[2], None, False
        elif not line.strip():
            address, device, capable, root = None, None, None, False
        elif "Express (" in line:
            root = "Port" in line and "Endpoint" not in line
        elif cap:
            capable = cap
        elif runs:
            links.append(_link(address, device, capable, runs, line, root))
    return tuple(links)


def _link(
    address: str | None,
    device: str | None,
    capable: re.Match[str] | None,
    runs: re.Match[str],
    line: str,
    root: bool,
) -> PcieLink:
    most = (float(capable[1]), int(capable[2])) if capable else (None, None)
    speed, width = float(runs[1]) if runs[1] else None, int(runs[3])
    marked = [(mark or "").casefold() == "downgraded" for mark in (runs[2], runs[4])]
    slower = marked[0] or (speed is not None and most[0] is not None and speed < most[0])
    narrower = marked[1] or (most[1] is not None and width < most[1])
    return PcieLink(address, device, most[0], most[1], speed, width, slower, narrower, line.strip(), root)


def link_findings(link: PcieLink) -> tuple[Finding, ...]:
    """A width that is too small, of a GPU, a NIC or disk of four lanes or more, or a device that is not named."""
    return tuple(_findings(link))


def _findings(link: PcieLink) -> Iterable[Finding]:
    if not _matters(link):
        return
    subject = _subject(link)
    if link.width_downgraded and link.width == 0:
        text = "No lane is up."
        yield Finding(subject, "pcie.link_down", Severity.ERROR, Action.CHECK_LINK, evidence(link.line), text)
    elif link.width_downgraded:
        text = "Fewer lanes than the device can: seating, riser, or bifurcation in the BIOS."
        severity = Severity.ERROR if link.is_gpu else Severity.WARNING
        yield Finding(subject, "pcie.width_degraded", severity, Action.CHECK_LINK, evidence(link.line), text)
    if link.speed_downgraded:
        text = "A slower link than the device can: normal when it is idle, a fault under load."
        yield Finding(subject, "pcie.speed_reduced", Severity.INFO, Action.WATCH, evidence(link.line), text)


_FAST = re.compile(r"ethernet|infiniband|network controller|non-volatile|NVSwitch", re.IGNORECASE)


def _matters(link: PcieLink) -> bool:
    """Would a narrow link of this device slow the node? Its upstream port shows the same link once more."""
    if link.is_gpu is not False:
        return True
    return bool(link.device and _FAST.search(link.device)) and (link.max_width is None or link.max_width >= 4)


def _subject(link: PcieLink) -> str:
    if link.address is None:
        return "pcie device"
    return f"gpu {link.address}" if link.is_gpu else f"pcie {link.address}"


def explain(text: str) -> Explanation:
    """The links for a person."""
    links = read_lspci(text)
    unknown = ["Whether a lowered speed is a fault: only the state under load tells."]
    if any(link.address is None for link in links):
        unknown.append("Which device a link belongs to: the text is an excerpt without its name.")
    if not links:
        unknown.append("The links' state: it takes lspci -vv as root.")
    subjects = [
        Subject(_subject(link), _facts(link)) for link in links if link.address is not None or link.is_gpu is not False
    ]
    findings = tuple(item for link in links for item in link_findings(link))
    return Explanation(KIND, tuple(subjects), findings, tuple(unknown))


def _facts(link: PcieLink) -> dict[str, str]:
    runs = f"{link.speed_gt_s:g} GT/s x{link.width}" if link.speed_gt_s is not None else f"x{link.width}"
    most = f"{link.max_gt_s:g} GT/s x{link.max_width}" if link.max_gt_s is not None else None
    return {key: value for key, value in (("device", link.device), ("runs", runs), ("can", most)) if value}
