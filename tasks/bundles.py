"""Bundles on disk: read, checked against their signature, and every image against its digest."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from adapters.operator_files import read_operator_bytes
from adapters.signatures import SignatureRefused, verify
from blocks.fleet import Fleet
from fleet.activation import stages
from fleet.approvals import BUNDLE_NAMESPACE
from fleet.bundle import parse_bundle
from fleet.errors import BundleRejected, ConfigurationError, PlanChanged
from fleet.plan import FirmwarePlan
from fleet.rollout import BundleSource
from tasks.node import Firmware
from tasks.operations import OperationRun
from tasks.visit import Visit

MANIFEST = "bundle.yaml"


def read_bundle(fleet: Fleet, path: Path) -> BundleSource:
    """Read and verify a bundle: signature of the manifest, presence and digest of every image.

    `path` is the folder or its manifest. Raises BundleRejected with everything that is wrong.
    """
    manifest = path / MANIFEST if path.is_dir() else path
    try:
        text = read_operator_bytes(manifest, "the bundle").decode("utf-8")  # a changed line ending is a change
    except ConfigurationError as error:
        raise BundleRejected(error.message) from error
    except UnicodeError as error:
        raise BundleRejected(f"{manifest} is no manifest (not UTF-8 text); give the bundle's folder") from error
    bundle = parse_bundle(text, str(manifest))
    _check_signature(fleet, manifest, text)
    faults = [fault for entry in bundle.entries for fault in _image_faults(manifest.parent / entry.image, entry.sha256)]
    if faults:
        raise BundleRejected("\n".join(faults))
    return BundleSource(bundle, str(manifest.absolute()), hashlib.sha256(text.encode()).hexdigest())


def load_firmware(source: BundleSource, fence: Callable[[Visit], None]) -> Firmware:
    """The bundle as node visits carry it."""
    folder = Path(source.path).parent
    images = {entry.name: folder / entry.image for entry in source.bundle.entries}
    return Firmware(source.bundle, images, stages(source.bundle), fence)


def firmware_of(run: OperationRun[FirmwarePlan], fence: Callable[[Visit], None]) -> Firmware:
    """What the operation's visits carry, verified again in this process.

    Raises PlanChanged for another bundle than the approved one, be it signed: a wave may have waited for days.
    """
    source = read_bundle(run.fleet, Path(run.plan.bundle_path))
    if source.digest != run.plan.bundle_digest:
        raise PlanChanged(f"bundle {run.plan.bundle_path} is not the one that was planned; plan again")
    return load_firmware(source, fence)


def _check_signature(fleet: Fleet, manifest: Path, text: str) -> None:
    signature = manifest.with_name(manifest.name + ".sig")
    allowed = fleet.spec().bundle_signers
    if allowed is None:
        raise BundleRejected("the fleet file names no bundle_signers (an allowed-signers file); no bundle is trusted")
    if not signature.is_file() or b"BEGIN SSH SIGNATURE" not in signature.read_bytes():
        raise BundleRejected(
            f"{manifest} is not signed; sign it: ssh-keygen -Y sign -n {BUNDLE_NAMESPACE} -f KEY {manifest}"
        )
    try:
        verify(text, signature.read_text(encoding="utf-8"), BUNDLE_NAMESPACE, fleet.folder() / allowed)
    except SignatureRefused as error:
        raise BundleRejected(f"{signature}: {error.message}") from error


def _image_faults(image: Path, sha256: str) -> list[str]:
    if not image.is_file():
        return [f"{image}: missing"]
    with image.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    return [] if found == sha256 else [f"{image}: sha256 is {found}, the manifest says {sha256}"]
