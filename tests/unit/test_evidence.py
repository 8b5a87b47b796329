"""Evidence is kept whole by its digest, once, and what was changed is not taken for it."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import pytest

from adapters.evidence import EvidenceFolder, evidence_folder
from fleet.errors import ConfigurationError

TEXT = "Worker 0:0 [1004]: 7.01e+05 gflops µ\n" * 200


def test_a_text_comes_back_by_its_digest_and_takes_little_room(tmp_path: Path) -> None:
    store = EvidenceFolder(tmp_path / "evidence")
    digest = store.keep(TEXT)
    assert digest == hashlib.sha256(TEXT.encode()).hexdigest()
    assert store.read(digest) == TEXT
    assert store.path(digest).stat().st_size < len(TEXT) / 10
    assert store.path(digest).stat().st_mode & 0o077 == 0


def test_keeping_it_again_writes_nothing(tmp_path: Path) -> None:
    store = EvidenceFolder(tmp_path)
    path = store.path(store.keep(TEXT))
    before = path.stat().st_mtime_ns
    store.keep(TEXT)
    assert path.stat().st_mtime_ns == before
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == [path]


def test_what_is_not_there_is_none_and_what_was_changed_is_refused(tmp_path: Path) -> None:
    store = EvidenceFolder(tmp_path)
    digest = store.keep(TEXT)
    assert store.read("0" * 64) is None
    store.path(digest).write_bytes(gzip.compress(b"better figures"))
    with pytest.raises(ConfigurationError, match="not what was kept"):
        store.read(digest)
    store.path(digest).write_bytes(b"cut")
    with pytest.raises(ConfigurationError, match="cannot read"):
        store.read(digest)


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ConfigurationError, match="cannot keep evidence"):
        EvidenceFolder(tmp_path / "file").keep(TEXT)


@pytest.mark.parametrize("name", ["", "../../etc/passwd", "A" * 64, "a" * 63])
def test_only_digests_name_evidence(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="SHA-256"):
        EvidenceFolder(tmp_path).read(name)


def test_the_folder_stands_beside_the_ledger() -> None:
    assert evidence_folder("sqlite:////srv/fleet/ledger.db?mode=rw", Path("/etc/fleet")) == Path("/srv/fleet/evidence")
    assert evidence_folder("postgresql://db/fleet", Path("/etc/fleet")) == Path("/etc/fleet/evidence")
