"""`gpufleet bmc read` on whole captured trees, served as files: a resource is <path>/index.json."""

from __future__ import annotations

import json
import posixpath
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TypedDict, cast

import pytest
from typer.testing import CliRunner

from cli.bmc import app

pytestmark = pytest.mark.corpus
INVENTORY = "/redfish/v1/UpdateService/FirmwareInventory"
CAPTURES = ("gh200", "dell_poweredge_r750")
Tree = dict[str, bytes]
Rows = list[dict[str, object]]


class Document(TypedDict):
    """What `bmc read --json` prints, as far as these tests look."""

    system: dict[str, object]
    power: str
    gpus: Rows
    firmware: Rows
    problems: list[str]


def _tree(shared: Path, name: str) -> Tree:
    """Resources by path, whatever folders stand before /redfish in the archive."""
    tree: Tree = {}
    with tarfile.open(shared / "captures" / f"{name}.tar.gz") as archive:
        for member in archive:
            folder, file = posixpath.split(member.name)
            content = archive.extractfile(member) if file == "index.json" and "redfish" in folder else None
            if content is not None:
                tree["/" + folder[folder.index("redfish") :]] = content.read()
    return tree


@contextmanager
def _served(tree: Tree) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 65536  # one packet an answer

        def do_GET(self) -> None:
            body = tree.get(self.path.partition("?")[0].rstrip("/"))
            self.send_response(200 if body is not None else 404)
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, format: str, *args: object) -> None:
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def _read(url: str, exit_code: int = 0) -> Document:
    result = CliRunner().invoke(app, ["read", url, "--json"])
    assert result.exit_code == exit_code, result.output
    document = json.loads(result.stdout)
    assert set(document) == {"url", "system", "power", "gpus", "firmware", "tasks", "problems"}
    return cast(Document, document)


def _members(tree: Tree) -> list[str]:
    listed = [str(m["@odata.id"]) for m in json.loads(tree[INVENTORY])["Members"]]
    return list(dict.fromkeys(listed))  # the GH200 lists one member twice


@pytest.mark.parametrize("name", CAPTURES)
def test_the_inventory_has_every_member_once_with_its_own_version(shared: Path, name: str) -> None:
    tree = _tree(shared, name)
    with _served(tree) as url:
        document = _read(url)
    assert document["problems"] == []
    bodies = [json.loads(tree[uri]) for uri in _members(tree)]
    assert [(row["id"], row["version"]) for row in document["firmware"]] == [
        (body["Id"], body["Version"].strip()) for body in bodies
    ]
    assert all(row["state"] == "Enabled" for row in document["firmware"])


def test_a_gh200_shows_both_gpus_and_only_running_versions(shared: Path) -> None:
    with _served(_tree(shared, "gh200")) as url:
        document = _read(url)
    assert document["system"] == {
        "vendor": "NVIDIA",
        "model": "P3809",
        "serial": "1580624650610",
        "bios_version": None,
    }
    assert document["power"] == "on"
    assert [(gpu["id"], gpu["serial"]) for gpu in document["gpus"]] == [
        ("GPU_0", "1640124000234"),
        ("GPU_1", "1640124000373"),
    ]
    assert {row["role"] for row in document["firmware"]} == {"active"}
    assert len(document["firmware"]) == 19


def test_a_dell_shows_its_gpu_and_its_previous_images_as_backups(shared: Path) -> None:
    with _served(_tree(shared, "dell_poweredge_r750")) as url:
        document = _read(url)
    assert [(gpu["id"], gpu["model"], gpu["uuid"]) for gpu in document["gpus"]] == [
        ("Video.Slot.2-1", "NVIDIA H100 PCIe", None)
    ]
    assert len(document["firmware"]) == 29
    backups = {row["id"] for row in document["firmware"] if row["role"] == "backup"}
    assert backups == {str(row["id"]) for row in document["firmware"] if str(row["id"]).startswith("Previous-")}
    assert len(backups) == 2


@pytest.mark.parametrize("name", CAPTURES)
def test_members_that_are_missing_or_cut_are_problems_and_the_rest_is_complete(shared: Path, name: str) -> None:
    tree = _tree(shared, name)
    whole = _members(tree)
    del tree[whole[1]]
    tree[whole[3]] = tree[whole[3]][:40]
    with _served(tree) as url:
        document = _read(url, exit_code=3)
    assert len(document["firmware"]) == len(whole) - 2
    assert len(document["problems"]) == 2
    assert all(any(uri.rpartition("/")[2] in str(p) for p in document["problems"]) for uri in (whole[1], whole[3]))


def test_a_staged_version_in_the_same_entry_is_a_row_of_its_own(shared: Path) -> None:
    tree = _tree(shared, "gh200")
    uri = f"{INVENTORY}/HGX_FW_GPU_0"
    slot = {"FirmwareState": "PendingActivation", "Version": "96.00.B0.00.01"}
    tree[uri] = json.dumps({**json.loads(tree[uri]), "Oem": {"Nvidia": {"InactiveFirmwareSlot": slot}}}).encode()
    with _served(tree) as url:
        rows = _read(url)["firmware"]
    assert [(r["version"], r["role"]) for r in rows if r["id"] == "HGX_FW_GPU_0"] == [
        ("96.00.A6.00.01", "active"),
        ("96.00.B0.00.01", "staged"),
    ]
    assert len(rows) == 20


def test_the_table_names_the_system_and_each_component(shared: Path) -> None:
    with _served(_tree(shared, "gh200")) as url:
        result = CliRunner().invoke(app, ["read", url])
    assert result.exit_code == 0
    assert "NVIDIA P3809" in result.output
    assert "HGX_FW_ERoT_GPU_1" in result.output


def test_a_host_where_nothing_listens_ends_with_4() -> None:
    result = CliRunner().invoke(app, ["read", "http://127.0.0.1:1", "--json"])
    assert result.exit_code == 4
    assert "no answer" in result.stderr


def test_a_password_comes_from_the_environment_and_never_shows(shared: Path) -> None:
    arguments = ["read", "http://127.0.0.1:1", "--user", "root", "--password-env", "BMC_PW"]
    result = CliRunner(env={"BMC_PW": "hidden-word"}).invoke(app, arguments)
    assert result.exit_code == 4
    assert "hidden-word" not in result.output + result.stderr
    assert CliRunner(env={"BMC_PW": None}).invoke(app, arguments).exit_code == 2


def test_a_url_that_is_none_and_half_a_login_are_told() -> None:
    assert CliRunner().invoke(app, ["read", "bmc1"]).exit_code == 2
    assert CliRunner().invoke(app, ["read", "http://127.0.0.1:1", "--user", "root"]).exit_code == 2
