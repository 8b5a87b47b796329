"""What a Kubernetes API server's refusals and silences are here, and which kubeconfigs are taken."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp.web
import pytest
import yaml

from adapters.kubernetes_api import KubernetesApi
from fleet.errors import ConfigurationError, CredentialsRejected, FleetError, SchedulerUnreachable
from simulator.keys import make_tls
from tests.contract.kubernetes_emulated import NODES, ApiServer, EmulatedCluster
from tests.unit.kubernetes_objects import Json, node


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmulatedCluster]:
    with EmulatedCluster() as running:
        yield running


@pytest.fixture
def server(cluster: EmulatedCluster) -> ApiServer:
    cluster.server.reset()
    cluster.server.store(NODES, node("gpu01"))
    return cluster.server


def _status(code: int, message: str) -> Json:
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message}


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (401, CredentialsRejected),
        (403, CredentialsRejected),
        (400, ConfigurationError),
        (422, ConfigurationError),
        (404, ConfigurationError),
        (408, SchedulerUnreachable),
        (410, SchedulerUnreachable),
        (429, SchedulerUnreachable),
        (500, SchedulerUnreachable),
        (503, SchedulerUnreachable),
    ],
)
def test_a_list_that_is_refused_is_never_an_empty_one(
    cluster: EmulatedCluster, server: ApiServer, code: int, kind: type[FleetError]
) -> None:
    words = f'nodes is forbidden: User "x" cannot list resource ({code})'
    server.broken = lambda request: aiohttp.web.Response(
        status=code, content_type="application/json", text=yaml.safe_dump(_status(code, words), default_flow_style=True)
    )
    api = KubernetesApi.at(cluster.url)
    for ask in (api.nodes, api.pods):
        with pytest.raises(kind, match=f"HTTP {code}"):
            ask()
    with pytest.raises(kind if code != 404 else AssertionError):
        assert api.node("gpu01") is not None


@pytest.mark.parametrize("kind", ["text/html", "application/json", ""])
@pytest.mark.parametrize("code", [200, 302, 403, 502])
@pytest.mark.parametrize("text", ["", "<html>sign in</html>", "null", "[]", '{"items": null}', '{"items": [7]}'])
def test_an_answer_of_something_else_is_no_empty_list(
    cluster: EmulatedCluster, server: ApiServer, code: int, kind: str, text: str
) -> None:
    headers = {"Content-Type": kind} if kind else {}
    server.broken = lambda request: aiohttp.web.Response(status=code, headers=headers, body=text.encode())
    api = KubernetesApi.at(cluster.url)
    for ask in (api.nodes, api.pods):
        with pytest.raises((SchedulerUnreachable, CredentialsRejected, ConfigurationError)):
            ask()


def test_a_server_that_is_not_there_is_unreachable() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    with pytest.raises(SchedulerUnreachable, match="does not answer"):
        KubernetesApi.at(f"http://127.0.0.1:{port}", timeout_seconds=2.0).nodes()


def test_an_address_that_is_none_is_an_error_of_the_configuration() -> None:
    with pytest.raises(ConfigurationError):
        KubernetesApi.at("gopher://127.0.0.1").nodes()


@contextmanager
def _tls_server(folder: Path) -> Iterator[str]:
    """Answers one connection with an empty list, where its handshake succeeds."""
    context = make_tls(folder, ("127.0.0.1",))
    answer = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 12\r\n\r\n{"items":[]}'
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            plain, _ = listening.accept()
            try:
                with context.wrap_socket(plain, server_side=True) as connection:
                    connection.recv(65536)
                    connection.sendall(answer)
            except OSError:
                plain.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"https://127.0.0.1:{listening.getsockname()[1]}"
        thread.join(10)


def test_a_certificate_that_nobody_trusts_is_an_error_of_the_configuration(tmp_path: Path) -> None:
    with _tls_server(tmp_path) as url, pytest.raises(ConfigurationError, match="certificate"):
        KubernetesApi.at(url, timeout_seconds=5.0).nodes()


def test_a_kubeconfigs_certificate_authority_is_trusted(tmp_path: Path) -> None:
    with _tls_server(tmp_path) as url:
        path = _kubeconfig(tmp_path, url, {"token": "abc"}, **{"certificate-authority": "ca.pem"})
        assert KubernetesApi.from_kubeconfig(path, timeout_seconds=5.0).nodes() == ()


def _kubeconfig(folder: Path, url: str, user: Json, **cluster: object) -> Path:
    path = folder / "config"
    tree = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "site",
        "clusters": [{"name": "c", "cluster": {"server": url, **cluster}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [
            {"name": "site", "context": {"cluster": "c", "user": "u"}},
            {"name": "nobody", "context": {"cluster": "c"}},
        ],
    }
    path.write_text(yaml.safe_dump(tree))
    return path


def test_a_kubeconfigs_token_is_sent(cluster: EmulatedCluster, server: ApiServer, tmp_path: Path) -> None:
    seen: list[str] = []
    server.broken = lambda request: seen.append(request.headers.get("Authorization", ""))
    api = KubernetesApi.from_kubeconfig(_kubeconfig(tmp_path, cluster.url, {"token": "abc"}), "site")
    assert len(api.nodes()) == 1
    assert seen == ["Bearer abc"]


def _logging_in_by(folder: Path, url: str, prints: str) -> Path:
    command = folder / "login"
    command.write_text(f"#!/bin/sh\ncat <<'END'\n{prints}\nEND\n")
    command.chmod(0o755)
    return _kubeconfig(
        folder, url, {"exec": {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": str(command)}}
    )


def test_a_login_commands_token_is_sent(cluster: EmulatedCluster, server: ApiServer, tmp_path: Path) -> None:
    seen: list[str] = []
    server.broken = lambda request: seen.append(request.headers.get("Authorization", ""))
    KubernetesApi.from_kubeconfig(_logging_in_by(tmp_path, cluster.url, '{"status": {"token": "fresh"}}')).nodes()
    assert seen == ["Bearer fresh"]


@pytest.mark.parametrize("prints", ["", "please visit", '{"status": {"clientCertificateData": "x"}}', "{}"])
def test_a_login_command_that_gives_no_token_is_an_error_of_the_configuration(
    cluster: EmulatedCluster, tmp_path: Path, prints: str
) -> None:
    with pytest.raises(ConfigurationError, match="login command gives no token"):
        KubernetesApi.from_kubeconfig(_logging_in_by(tmp_path, cluster.url, prints)).nodes()


@pytest.mark.parametrize(
    "user",
    [
        {"exec": {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "/nonexistent/login"}},
        {"exec": {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "false"}},
        {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "true"}},
        {"auth-provider": {"name": "gcp"}},
        {"client-certificate": "/nonexistent/a.pem", "client-key": "/nonexistent/b.pem"},
        {"client-certificate-data": "bm90aGluZw==", "client-key-data": "bm90aGluZw=="},
        {"tokenFile": "/nonexistent/token"},
        {"token": ["a"]},
    ],
)
def test_credentials_that_cannot_be_had_are_an_error_of_the_configuration(
    cluster: EmulatedCluster, tmp_path: Path, user: Json
) -> None:
    path = _kubeconfig(tmp_path, cluster.url, user)
    with pytest.raises(ConfigurationError):
        KubernetesApi.from_kubeconfig(path).nodes()


@pytest.mark.parametrize("context", ["nobody", "elsewhere"])
def test_a_context_without_a_user_or_that_is_not_there_is_named(tmp_path: Path, context: str) -> None:
    path = _kubeconfig(tmp_path, "http://127.0.0.1", {"token": "abc"})
    with pytest.raises(ConfigurationError, match=f"no user|{context}"):
        KubernetesApi.from_kubeconfig(path, context)


@pytest.mark.parametrize("text", [None, "", "a: [", "clusters: 7", "[]", "kind: Config\n"])
def test_a_file_that_is_no_kubeconfig_is_an_error_of_the_configuration(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "config"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigurationError, match="kubeconfig"):
        KubernetesApi.from_kubeconfig(path)
