"""What a reader answers: a checkpoint, or why there is none that can be told."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias


class CheckpointKind(StrEnum):
    """Who writes the checkpoint, and so how a complete one is told from a half-written one."""

    MEGATRON = "megatron"
    DEEPSPEED = "deepspeed"
    DCP = "dcp"
    HUGGINGFACE = "huggingface"
    LIGHTNING = "lightning"
    ORBAX = "orbax"
    BEACON = "beacon"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The newest checkpoint of a tree. Only one with `complete` True counts; None is "cannot be told".

    `completed_at` is in our clock where `clock_measured`, else in the storage's. `interval_seconds` is the median time
    between the complete checkpoints that are still there, None where fewer than two were read. `write_seconds` is the
    time from its first file to its last, None for a single file.
    """

    path: str
    step: int | None
    completed_at: datetime | None
    complete: bool | None
    why: str
    interval_seconds: float | None = None
    clock_measured: bool = False
    write_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class UnknownCheckpoint:
    """Nothing can be told, and why. `none_yet`: the tree was read to its end and holds no checkpoint."""

    reason: str
    none_yet: bool = False


NewestCheckpoint: TypeAlias = Checkpoint | UnknownCheckpoint


@dataclass(frozen=True, slots=True)
class Judged:
    """One candidate, judged. `completed_at` is by the storage's clock, as the files carry it."""

    path: str
    step: int | None
    completed_at: datetime | None
    complete: bool | None
    why: str
