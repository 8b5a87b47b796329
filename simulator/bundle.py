"""The demo's firmware bundle, in the format that real bundles have: manifest, images, signature."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Sequence
from pathlib import Path

import yaml

from fleet.approvals import BUNDLE_NAMESPACE
from fleet.bundle import parse_bundle
from fleet.errors import ConfigurationError
from fleet.model import ResetKind
from simulator.firmware import BundleEntry
from simulator.machine import Timing


def write_bundle(
    folder: Path, entries: Sequence[BundleEntry], models: Sequence[str], timing: Timing, scale: float, key: Path
) -> None:
    """Write the bundle and sign it with `key`. Expected times are real seconds at the clock's `scale`.

    Raises ConfigurationError where ssh-keygen is missing.
    """
    images = folder / "images"
    images.mkdir(parents=True, exist_ok=True)
    for entry in entries:
        (images / f"{entry.image.family}.bin").write_bytes(entry.content)
    manifest = {
        "version": 1,
        "name": "hgx-h100-demo",
        "release": "24.11-1",
        "fits": list(models),
        "reset_seconds": {kind.value: round(s / scale, 3) for kind, s in reset_seconds(timing).items()},
        "entries": [_entry(entry, timing, scale) for entry in sorted(entries, key=lambda e: e.order)],
    }
    text = yaml.safe_dump(manifest, sort_keys=False, width=110)
    parse_bundle(text, "bundle.yaml")
    path = folder / "bundle.yaml"
    path.write_text(text)
    _sign(path, key)


def reset_seconds(timing: Timing) -> dict[ResetKind, float]:
    """Simulated seconds from the request of a reset until host and BMC are back."""
    return {
        ResetKind.NONE: 0.0,
        ResetKind.BMC_RESET: timing.bmc_restart,
        ResetKind.HOST_REBOOT: timing.boot,
        ResetKind.AC_CYCLE: timing.ac_off + max(timing.bmc_restart, timing.boot),
    }


def _entry(entry: BundleEntry, timing: Timing, scale: float) -> dict[str, object]:
    return {
        "name": entry.image.family,
        "match": list(entry.image.components),
        "version": entry.image.version,
        "image": f"images/{entry.image.family}.bin",
        "sha256": hashlib.sha256(entry.content).hexdigest(),
        "reset": entry.reset.value,
        "one_way": "ERoT" in entry.image.family,
        "expected_seconds": round(timing.flash / scale, 3),
    }


def _sign(path: Path, key: Path) -> None:
    path.with_name(path.name + ".sig").unlink(missing_ok=True)
    command = ["ssh-keygen", "-q", "-Y", "sign", "-n", BUNDLE_NAMESPACE, "-f", str(key), str(path)]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=60)  # noqa: S603
    except FileNotFoundError as error:
        raise ConfigurationError("signing the demo's bundle needs ssh-keygen (package openssh-client)") from error
    except subprocess.CalledProcessError as error:
        raise ConfigurationError(f"ssh-keygen: {error.stderr.decode().strip()}") from error
