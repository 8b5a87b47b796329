"""Redfish messages and error bodies."""

from __future__ import annotations

import json
from collections.abc import Mapping

from aiohttp import web

Message = dict[str, object]

HEADERS: Mapping[str, str] = {"OData-Version": "4.0", "Cache-Control": "no-cache"}


def message(id_: str, text: str, *args: str, severity: str = "OK", resolution: str = "None.") -> Message:
    """A message object (Message.v1_1_2)."""
    return {
        "@odata.type": "#Message.v1_1_2.Message",
        "MessageId": id_,
        "Message": text,
        "MessageArgs": list(args),
        "MessageSeverity": severity,
        "Resolution": resolution,
    }


def error(
    status: int,
    id_: str,
    text: str,
    resolution: str = "Correct the request and send it again.",
    headers: Mapping[str, str] | None = None,
) -> web.Response:
    """An error answer with one extended message; `id_` without its registry is of Base 1.15."""
    full = id_ if "." in id_ else f"Base.1.15.0.{id_}"
    info = message(full, text, severity="Critical" if status >= 500 else "Warning", resolution=resolution)
    body = {"error": {"code": full, "message": text, "@Message.ExtendedInfo": [info]}}
    return answer(json.dumps(body).encode(), status, headers)


def answer(body: bytes | None, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """A JSON answer; None for no body."""
    every = {**HEADERS, **headers} if headers else HEADERS
    if body is None:
        return web.Response(status=status, headers=every)
    return web.Response(body=body, status=status, headers=every, content_type="application/json")
