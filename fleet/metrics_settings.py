"""The fleet file's `metrics`: where measurements are kept, and which labels name a node and a GPU there."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Self

from pydantic import Field, StringConstraints, model_validator

from fleet.setting_types import BmcUrl, Name, Share, Strict

LabelName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]
LabelValue = Annotated[str, StringConstraints(pattern=r"^[ -~]{1,256}$")]
_SELECTOR = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*(\{[^{}]*\})?")


class MetricsSecret(Strict):
    """Where a secret is: exactly one of an environment variable and a file (relative to the fleet file)."""

    env: str | None = None
    file: str | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.env is None) == (self.file is None):
            raise ValueError("give exactly one of env and file")
        return self


class MetricsTls(Strict):
    verify: bool = Field(True, description="false is shown by `gpufleet status`")
    ca: str | None = Field(None, description="PEM file, relative to the fleet file; default: the system's")


class MetricsLabels(Strict):
    """Labels in the order in which they are looked at. The defaults are those of all releases of dcgm-exporter."""

    node: tuple[LabelName, ...] = Field(
        ("Hostname", "hostname", "node", "nodename", "instance"), min_length=1, description="hold a node's name"
    )
    gpu: tuple[LabelName, ...] = Field(("gpu", "device"), min_length=1, description="hold a GPU's number")
    uuid: tuple[LabelName, ...] = Field(("UUID", "uuid", "gpu_uuid"), description="hold a GPU's UUID")


class MetricsSettings(Strict):
    """A Prometheus, or what speaks its HTTP API (Thanos, Mimir, VictoriaMetrics)."""

    url: BmcUrl = Field(description="the server's own, with its path where it has one, without /api/v1")
    bearer: MetricsSecret | None = Field(None, description="a token; not together with user")
    user: str | None = Field(None, description="for basic authentication, with password")
    password: MetricsSecret | None = None
    tenant: LabelValue | None = Field(None, description="Mimir and Cortex: the header X-Scope-OrgID")
    tls: MetricsTls = MetricsTls()
    timeout_seconds: float = Field(60.0, gt=0, le=3600, description="one query")
    step_seconds: float = Field(
        60.0, ge=1, le=3600, description="between two points that are read; no less than the scrape interval"
    )
    labels: MetricsLabels = MetricsLabels()
    matchers: dict[LabelName, LabelValue] = Field(
        {}, description="labels that every series of ours has: where one server keeps several sites"
    )
    names: dict[Name, LabelValue] = Field(
        {}, description="nodes whose name is another one there; short and full host names are told apart without it"
    )
    inlet: str | None = Field(
        None, description='selector of the inlet temperature, as ipmi_temperature_celsius{name="Inlet Temp"}'
    )
    least_complete: Share = Field(0.8, description="of a window's points; below it a value counts as missing")
    busy_percent: float = Field(
        70.0, gt=0, le=100, description="utilisation from which on a GPU's clocks and pipes are judged"
    )

    @property
    def step(self) -> timedelta:
        return timedelta(seconds=self.step_seconds)

    @model_validator(mode="after")
    def _one_login(self) -> Self:
        if (self.user is None) != (self.password is None):
            raise ValueError("user and password belong together")
        if self.bearer is not None and self.user is not None:
            raise ValueError("give bearer, or user and password, not both")
        if self.inlet is not None and _SELECTOR.fullmatch(self.inlet) is None:
            raise ValueError("inlet is a metric's name, with matchers in braces where it needs them")
        return self
