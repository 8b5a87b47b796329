"""A real Prometheus behind TLS and a password."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import bcrypt
import pytest
from real.prometheus_server import PrometheusServer, missing_prometheus

from adapters.clock import SystemClock
from blocks.metrics import open_metrics
from fleet.errors import ConfigurationError, CredentialsRejected
from fleet.metrics_settings import MetricsSettings
from simulator.keys import make_tls

pytestmark = pytest.mark.prometheus
PASSWORD = "a password: of the test"
BEGAN = datetime(2026, 3, 2, tzinfo=UTC)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[PrometheusServer, Path]]:
    """A server that asks for `reader` and its password, and the folder with its CA."""
    missing = missing_prometheus()
    if missing is not None:
        pytest.skip(missing)
    folder = tmp_path_factory.mktemp("metrics")
    make_tls(folder, ["127.0.0.1"])
    hashed = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
    tls = f"tls_server_config:\n  cert_file: {folder}/ca.pem\n  key_file: {folder}/tls_key.pem\n"
    web = f"{tls}basic_auth_users:\n  reader: '{hashed}'\n"
    with PrometheusServer([f"up 1 {BEGAN.timestamp():.0f}"], web=web) as server:
        yield server, folder


def read(site: tuple[PrometheusServer, Path], password: str, ca: str | None) -> int:
    server, folder = site
    (folder / "password").write_text(password)
    settings = MetricsSettings.model_validate(
        {"url": server.url, "user": "reader", "password": {"file": "password"}, "tls": {"ca": ca}}
    )
    with open_metrics(settings, folder, SystemClock()) as client:
        return len(client.read_instant("up", BEGAN).series)


def test_a_server_is_read_with_its_ca_and_the_right_password(site: tuple[PrometheusServer, Path]) -> None:
    assert read(site, PASSWORD, "ca.pem") == 1


def test_a_wrong_password_is_refused_and_not_shown(site: tuple[PrometheusServer, Path]) -> None:
    with pytest.raises(CredentialsRejected) as caught:
        read(site, "another password", "ca.pem")
    assert "another" not in str(caught.value)


def test_a_certificate_that_no_known_ca_signed_is_refused(site: tuple[PrometheusServer, Path]) -> None:
    with pytest.raises(ConfigurationError, match=r"(?i)certificate"):
        read(site, PASSWORD, None)
