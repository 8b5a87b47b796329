"""A Debian root made by mmdebstrap, packages made by dpkg-deb, and a signed repository of them inside."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

_SUITE = "bookworm"
_TOOLS = ("mmdebstrap", "dpkg-deb", "gpg", "chroot")
REPOSITORY = "srv/repo"


def missing_tools() -> str | None:
    """Why no root can be made here; None where it can."""
    if os.geteuid() != 0:
        return "a Debian root is made and entered as root"
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    lacking = [tool for tool in _TOOLS if shutil.which(tool, path=path) is None]
    return f"not installed: {', '.join(lacking)} (Debian: mmdebstrap, dpkg, gpg)" if lacking else None


def make_root(folder: Path) -> Path:
    """The smallest Debian with Python, for the node probe; a copy where DEBIAN_ROOT names one that was made before."""
    root = folder / "root"
    made = os.environ.get("DEBIAN_ROOT")
    if made:
        subprocess.run(["cp", "-a", made, str(root)], check=True)
    else:
        _bootstrap(root)
    write(root, "etc/dpkg/dpkg.cfg.d/fast", "force-unsafe-io\n")
    write(root, "etc/apt/apt.conf.d/90test", 'APT::Sandbox::User "root";\nAcquire::Languages "none";\n')
    return root


def _bootstrap(root: Path) -> None:
    environment = {**os.environ, "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin", "LC_ALL": "C"}
    options = ("--quiet", "--variant=minbase", "--mode=root", "--include=python3", "--dpkgopt=force-unsafe-io")
    command = ["mmdebstrap", *options, _SUITE, str(root)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout[-2000:]}{done.stderr[-500:]}"
    for place in ("proc", "sys"):  # a node's kernel is files here, which a test can set
        if os.path.ismount(root / place):
            subprocess.run(["umount", "-l", str(root / place)], check=True)


def copy_root(base: Path, place: Path) -> Path:
    """A copy that shares its files with `base`; what dpkg and apt write, they write anew."""
    subprocess.run(["cp", "-al", str(base), str(place)], check=True)
    locks = ("lib/dpkg/lock", "lib/dpkg/lock-frontend", "lib/apt/lists/lock", "cache/apt/archives/lock")
    for name in (*locks, "log/dpkg.log", "log/apt/history.log", "log/apt/term.log", "lib/dpkg/triggers/Lock"):
        (place / "var" / name).unlink(missing_ok=True)
    return place


def write(root: Path, path: str, text: str, mode: int = 0o644) -> Path:
    """A file that no copy shares."""
    place = root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    place.write_text(text)
    place.chmod(mode)
    return place


def inside(root: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the root, as a person at its console would."""
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(["chroot", str(root), *command], env=environment, capture_output=True, text=True, check=False)


@dataclass
class Deb:
    """A package to build. `files` is path → text, `scripts` name (postinst …) → its shell text."""

    name: str
    version: str
    fields: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    scripts: dict[str, str] = field(default_factory=dict)

    @property
    def file_name(self) -> str:
        return f"{self.name}_{self.version.partition(':')[2] or self.version}_amd64.deb"


def build(deb: Deb, repository: Path) -> None:
    """Build it into the repository's folder."""
    tree = repository / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    fields = {"Package": deb.name, "Version": deb.version, "Architecture": "amd64", "Maintainer": "t <t@example.org>"}
    lines = [f"{name}: {text}" for name, text in {**fields, **deb.fields}.items()]
    write(tree, "DEBIAN/control", "\n".join([*lines, "Description: for a test", ""]))
    for path, text in deb.files.items():
        write(tree, path, text, 0o755 if "/bin/" in path or "/sbin/" in path else 0o644)
    for path, goal in deb.links.items():
        (tree / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
        (tree / path.lstrip("/")).symlink_to(goal)
    for name, text in deb.scripts.items():
        write(tree, f"DEBIAN/{name}", f"#!/bin/sh\nset -e\n{text}\n", 0o755)
    target = repository / deb.file_name
    command = ["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "-b", str(tree), str(target)]
    subprocess.run(command, check=True, capture_output=True)
    shutil.rmtree(tree)


class Signer:
    """A key of the tests' own, with which the repository is signed."""

    def __init__(self, folder: Path) -> None:
        self._home = folder / "gnupg"
        self._home.mkdir(mode=0o700)
        parameters = "Key-Type: eddsa\nKey-Curve: ed25519\nName-Real: test\nExpire-Date: 0\n%no-protection\n%commit\n"
        self._gpg("--batch", "--gen-key", given=parameters)

    def _gpg(self, *words: str, given: str = "") -> str:
        command = ["gpg", "--homedir", str(self._home), "--no-tty", "--yes", *words]
        return subprocess.run(command, input=given, capture_output=True, text=True, check=True).stdout

    def key(self) -> str:
        return self._gpg("--armor", "--export")

    def sign(self, text: str) -> str:
        return self._gpg("--batch", "--clearsign", given=text)

    def close(self) -> None:
        subprocess.run(["gpgconf", "--homedir", str(self._home), "--kill", "gpg-agent"], check=False)


def publish(root: Path, signer: Signer | None) -> None:
    """Write the repository's index of every package in it, signed where there is a signer."""
    repository = root / REPOSITORY
    blocks = []
    for deb in sorted(repository.glob("*.deb")):
        content = deb.read_bytes()
        shown = subprocess.run(["dpkg-deb", "-f", str(deb)], capture_output=True, text=True, check=True).stdout.strip()
        digest = hashlib.sha256(content).hexdigest()
        blocks.append(f"{shown}\nFilename: ./{deb.name}\nSize: {len(content)}\nSHA256: {digest}\n")
    index = "\n".join(blocks).encode()
    packed = gzip.compress(index, mtime=0)
    (repository / "Packages.gz").unlink(missing_ok=True)
    (repository / "Packages.gz").write_bytes(packed)
    write(repository, "Packages", index.decode())
    rows = [f" {hashlib.sha256(d).hexdigest()} {len(d)} {n}" for d, n in ((index, "Packages"), (packed, "Packages.gz"))]
    release = "\n".join(["Origin: test", "Suite: test", "Date: Mon, 01 Jan 2024 00:00:00 UTC", "SHA256:", *rows, ""])
    (repository / "InRelease").unlink(missing_ok=True)
    if signer is None:
        write(repository, "Release", release)
    else:
        (repository / "Release").unlink(missing_ok=True)
        write(repository, "InRelease", signer.sign(release))
        write(root, "etc/apt/keyrings/test.asc", signer.key())
    write(root, "etc/apt/sources.list", f"deb [signed-by=/etc/apt/keyrings/test.asc] file:/{REPOSITORY} ./\n")
