"""The types of a fleet file's values, shared by its parts."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]


def _port_exists(address: str) -> str:
    """A host[:port] or URL whose port, where it has one, is one."""
    port = re.search(r":(\d+)/?$", address)
    if port is not None and not 0 < int(port[1]) < 2**16:
        raise ValueError(f"port {port[1]} does not exist; 1 to 65535")
    return address


BmcUrl = Annotated[str, StringConstraints(pattern=r"^https?://[^\s/@?#]+(/[^\s?#@]*)?$"), AfterValidator(_port_exists)]
SshAddress = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9][^\s:@/]*(:\d{1,5})?$"), AfterValidator(_port_exists)
]


class Strict(BaseModel):
    """An unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)
