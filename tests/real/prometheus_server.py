"""A real Prometheus on blocks that the tests fill in: its own folder, a free loopback port, ended by its process id."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Self

import httpx

_READY_TRIES = 300


def missing_prometheus() -> str | None:
    """Why no Prometheus can be started here; None where one can."""
    missing = [name for name in ("prometheus", "promtool") if shutil.which(name) is None]
    return f"no {' and '.join(missing)} (Debian: prometheus)" if missing else None


class PrometheusServer:
    """One server. `lines` are OpenMetrics samples with times, in any order of series.

    `web` is the text of a web configuration file: TLS and users. The server then speaks https.
    """

    def __init__(self, lines: Iterable[str], *options: str, web: str | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="gpufleet-prometheus-"))
        self._options = options
        self._web = web
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0
        with (self.folder / "in.om").open("w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
            file.write("# EOF\n")

    @property
    def url(self) -> str:
        return f"{'http' if self._web is None else 'https'}://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        try:
            text, data = self.folder / "in.om", self.folder / "data"
            command = ["promtool", "tsdb", "create-blocks-from", "--quiet", "openmetrics", str(text), str(data)]
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=240)
            text.unlink()
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self) -> None:
        (self.folder / "prometheus.yml").write_text("scrape_configs: []\n")
        (self.folder / "web.yml").write_text(self._web or "")
        self.port = _free_port()
        with (self.folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={self.folder}/prometheus.yml",
                    f"--storage.tsdb.path={self.folder}/data",
                    "--storage.tsdb.retention.time=10y",
                    f"--web.config.file={self.folder}/web.yml",
                    f"--web.listen-address=127.0.0.1:{self.port}",
                    *self._options,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        for _ in range(_READY_TRIES):
            if self._is_ready():
                return
            try:
                self._process.wait(0.1)
            except subprocess.TimeoutExpired:
                continue
            break
        raise RuntimeError(f"prometheus does not start: {(self.folder / 'log').read_text()[-2000:]}")

    def _is_ready(self) -> bool:
        try:
            answer = httpx.get(f"{self.url}/-/ready", timeout=2, trust_env=False, verify=False)
            return answer.status_code in (200, 401)  # 401: ready to ask who we are
        except httpx.TransportError:
            return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
