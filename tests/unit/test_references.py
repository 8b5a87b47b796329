"""What a fleet file points to is looked at before anything starts."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from adapters.references import check_references, read_secret
from fleet.config import SecretRef, parse_fleet
from fleet.errors import ConfigurationError

FILE = """\
version: 1
fleet: lab
bmc: {user: admin, password: {file: bmc_password}, tls: {ca: ca.pem}}
ssh: {user: root, key: {env: LAB_KEY}}
bundle_signers: trusted
gate: {allowed_signers: signers}
pools: {train: {gate: {allowed_signers: train_signers}}}
racks: {r01: {}}
nodes: [{name: n1, rack: r01, pool: train, model: HGX-H100-8, bmc: "https://10.0.0.1", ssh: 10.1.0.1}]
"""


def test_everything_that_is_missing_is_listed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAB_KEY", raising=False)
    with pytest.raises(ConfigurationError) as caught:
        check_references(parse_fleet(FILE, "fleet.yaml"), tmp_path)
    for part in ("bmc.password", "ca.pem", "LAB_KEY", "known_hosts", "bundle_signers", "gate.allowed_signers"):
        assert part in str(caught.value)
    assert "pools.train.gate.allowed_signers" in str(caught.value)


def test_a_whole_set_is_no_fault_and_a_wrong_key_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = parse_fleet(FILE.replace(", tls: {ca: ca.pem}", ""), "fleet.yaml")
    key = tmp_path / "id"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    monkeypatch.setenv("LAB_KEY", str(key))
    for name in ("bmc_password", "known_hosts", "trusted", "signers", "train_signers"):
        (tmp_path / name).write_text("x\n" if name == "bmc_password" else "")
    check_references(spec, tmp_path)
    key.write_text("no key at all")
    with pytest.raises(ConfigurationError, match="holds no private key"):
        check_references(spec, tmp_path)


def test_an_empty_secret_is_not_tried_on_every_bmc(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("\n")
    with pytest.raises(ConfigurationError, match="password is empty"):
        read_secret(SecretRef(file="password"), tmp_path, "bmc.password")
