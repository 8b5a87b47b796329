"""How an image reaches the BMC: a multipart push, or a download that SimpleUpdate asks for."""

from __future__ import annotations

import json
from dataclasses import dataclass

import aiohttp
from aiohttp import web

from simulator.bmc.tree import ROOT
from simulator.bmc.tree_firmware import INVENTORY
from simulator.firmware import FirmwareImage, read_image

MAX_IMAGE_BYTES = 209715200
_HEAD_BYTES = 4096
_FETCH_SECONDS = 30.0  # real


@dataclass(frozen=True, slots=True)
class Push:
    """A multipart push as it came in; `head` is the image's beginning."""

    targets: tuple[str, ...]
    force: bool
    head: bytes


async def read_push(request: web.BaseRequest) -> Push:
    """Read UpdateParameters and UpdateFile. Raises ValueError where one is missing or wrong."""
    try:
        reader = await request.multipart()
    except (AssertionError, ValueError) as error:
        raise ValueError("the request is not multipart/form-data") from error
    parameters: object = None
    head: bytes | None = None
    while (part := await reader.next()) is not None:
        if not isinstance(part, aiohttp.BodyPartReader):
            raise ValueError("a part of the request has parts of its own")
        if part.name == "UpdateParameters":
            parameters = json.loads(await part.read())
        elif part.name == "UpdateFile":
            head = await _read_head(part)
    if head is None:
        raise ValueError("the part UpdateFile is missing")
    if not isinstance(parameters, dict):
        raise ValueError("the part UpdateParameters is missing or no JSON object")
    targets, force = read_targets(parameters), parameters.get("ForceUpdate", False)
    if not isinstance(force, bool):
        raise ValueError("ForceUpdate must be true or false")
    return Push(targets, force, head)


async def _read_head(part: aiohttp.BodyPartReader) -> bytes:
    head, size = b"", 0
    while chunk := await part.read_chunk(65536):
        size += len(chunk)
        if len(head) < _HEAD_BYTES:
            head += chunk
        if size > MAX_IMAGE_BYTES:
            raise ValueError(f"UpdateFile is larger than {MAX_IMAGE_BYTES} bytes")
    return head


def read_targets(parameters: dict[str, object]) -> tuple[str, ...]:
    """The component ids that `Targets` names by URI. Raises ValueError for anything else."""
    targets = parameters.get("Targets", [])
    prefix = f"{ROOT}/{INVENTORY}/"
    if not isinstance(targets, list) or not all(isinstance(uri, str) and uri.startswith(prefix) for uri in targets):
        raise ValueError(f"Targets must be a list of URIs below {prefix}")
    return tuple(uri.removeprefix(prefix) for uri in targets)


async def fetch_image(uri: str) -> FirmwareImage:
    """Download an image. Raises ValueError where that fails."""
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_FETCH_SECONDS)) as client,
            client.get(uri) as answer,
        ):
            if answer.status != 200:
                raise ValueError(f"the image server answered {answer.status}")
            return read_image(await answer.content.read(_HEAD_BYTES))
    except (aiohttp.ClientError, TimeoutError) as error:
        raise ValueError("the image could not be fetched") from error
