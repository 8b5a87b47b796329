"""Packages, services and update settings that a driver depends on."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .commands import run_all
from .files import Root, unknown
from .system import shell_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .commands import Outcome
    from .workers import Pair

_PATTERNS = (
    "*nvidia*",
    "cuda-drivers*",
    "cuda-compat*",
    "cuda-toolkit*",
    "datacenter-gpu-manager*",
    "libnccl*",
    "nvlsm",
    "doca-*",
    "mlnx-*",
    "linux-image*",
    "kernel",
    "kernel-core",
)
_UNITS = (
    "nvidia-fabricmanager",
    "nvidia-persistenced",
    "nvidia-imex",
    "nvidia-dcgm",
    "dcgm",
    "dcgm-exporter",
    "nvidia-cdi-refresh",
    "nvsm",
    "openibd",
    "slurmd",
    "kubelet",
    "containerd",
    "docker",
    "unattended-upgrades",
    "apt-daily-upgrade.timer",
    "dnf-automatic.timer",
    "dnf-automatic-install.timer",
    "packagekit",
    "apport",
    "whoopsie",
    "motd-news.timer",
    "ua-timer.timer",
    "fwupd-refresh.timer",
    "insights-client.timer",
    "rhsmcertd",
    "fleetint",
    "gpud",
    "doca_telemetry",
)
_UNIT_FIELDS = "Id,LoadState,ActiveState,SubState,UnitFileState,ExecMainStatus"
_PERIODIC = re.compile(r'APT::Periodic::([\w-]+)\s+"?(\w+)"?')


def read_packages(root: Root, seconds: float) -> Iterator[Pair]:
    """`packages` (driver, CUDA, fabric, kernels), `services`, `updates` and `egress`."""
    outcomes = run_all(
        root,
        {
            "dpkg": ("dpkg-query", "-W", "-f", "${Package}\t${Version}\t${Status}\n", *_PATTERNS),
            "rpm": ("rpm", "-qa", "--qf", "%{NAME}\t%{VERSION}-%{RELEASE}\tinstall ok installed\n", *_PATTERNS),
            "units": ("systemctl", "show", "--no-pager", "-p", _UNIT_FIELDS, "--", *_UNITS),
        },
        seconds,
    )
    kind = "rpm" if isinstance(outcomes["dpkg"], str) else "dpkg"
    outcome = outcomes[kind]
    yield "manager", unknown(f"{outcomes['dpkg']}; {outcome}") if isinstance(outcome, str) else kind
    yield "listed", list(_PATTERNS)
    yield "packages", _packages(outcome)
    services = _services(outcomes["units"])
    yield "services", services
    yield "updates", _updates(root)
    yield "egress", _egress(root)


def _packages(outcome: Outcome) -> object:
    """[{name, version, hold}]; dpkg-query ends with 1 where a pattern matches nothing."""
    if isinstance(outcome, str):
        return unknown(outcome)
    if outcome.code not in (0, 1):
        return unknown(outcome.err.strip()[-200:] or f"status {outcome.code}")
    found = []
    for line in outcome.out.splitlines():
        fields = line.split("\t")
        if len(fields) == 3 and fields[2].endswith(" installed"):
            found.append({"name": fields[0], "version": fields[1], "hold": fields[2].startswith("hold")})
    return found


def _services(outcome: Outcome) -> object:
    """{unit: {state, sub, enabled, status}}; the state of one that is not installed is not-found."""
    if isinstance(outcome, str):
        return unknown(outcome)
    if outcome.code:
        return unknown(outcome.err.strip()[-200:] or f"systemctl ended with {outcome.code}")
    found: dict[str, dict[str, str | None]] = {}
    for block in outcome.out.split("\n\n"):
        fields = shell_settings(block)
        name = fields.get("Id", "").rpartition(".service")[0] or fields.get("Id", "")
        if fields.get("LoadState") == "not-found":
            found[name] = {"state": "not-found"}
        elif name:
            found[name] = {
                "state": fields.get("ActiveState"),
                "sub": fields.get("SubState"),
                "enabled": fields.get("UnitFileState") or None,
                "status": fields.get("ExecMainStatus"),
            }
    return found


def _updates(root: Root) -> dict[str, object]:
    """What may change packages by itself, and what keeps them from it."""
    folder = "/etc/apt/apt.conf.d"
    periodic: dict[str, str] = {}
    for name in root.names(folder):
        periodic.update(_PERIODIC.findall(_uncommented(root.text(f"{folder}/{name}") or "", "//")))
    locks = _uncommented(root.text("/etc/dnf/plugins/versionlock.list") or "", "#").split("\n")
    excludes = [
        value
        for path in ("/etc/dnf/dnf.conf", "/etc/yum.conf")
        for name, value in shell_settings(root.text(path) or "").items()
        if name in ("exclude", "excludepkgs")
    ]
    return {
        "apt_periodic": periodic,
        "dnf_version_locks": [line.strip() for line in locks if line.strip()],
        "dnf_excludes": " ".join(excludes).replace(",", " ").split(),
    }


def _uncommented(text: str, mark: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith(mark))


def _egress(root: Root) -> dict[str, object]:
    """Settings by which a node speaks to the outside without being asked to."""
    settings = {
        "motd_news": shell_settings(root.text("/etc/default/motd-news") or "").get("ENABLED"),
        "popularity_contest": shell_settings(root.text("/etc/popularity-contest.conf") or "").get("PARTICIPATE"),
        "apport": shell_settings(root.text("/etc/default/apport") or "").get("enabled"),
    }
    environment = shell_settings(root.text("/etc/environment") or "")
    proxies = {
        name.lower(): _without_password(text) for name, text in environment.items() if name.lower()[-6:] == "_proxy"
    }
    return {
        **{name: value or "absent" for name, value in settings.items()},
        "proxies": proxies,
        "default_route": _default_routes(root),
    }


def _without_password(url: str) -> str:
    return re.sub(r"//.*@", "//", url)  # a password may hold / and @; too much cut off is better than too little


def _default_routes(root: Root) -> object:
    """Interfaces with an IPv4 default route. Source of the table: proc(5), /proc/net/route."""
    text = root.text("/proc/net/route")
    if text is None:
        return unknown("no /proc/net/route")
    rows = [line.split() for line in text.splitlines()[1:]]
    return sorted({row[0] for row in rows if len(row) > 7 and row[1] == "00000000" and row[7] == "00000000"})
