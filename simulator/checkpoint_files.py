"""Checkpoints on disk as each framework writes them, of a few bytes each; and what a restart finds there.

Runs inside a job, in the same process as `train.py`: Python standard library only. Sources of the layouts are named in
`fleet/checkpoint_readers`, which reads them; nothing is shared with it, so that neither proves itself.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

_KEPT = 3  # checkpoints, of the frameworks that keep more than one

Write = Iterator[None]
"""A checkpoint that is being written: one step of it a turn; complete when it is at its end."""


def write_megatron(folder: Path, step: int, ranks: int) -> Write:
    new = folder / f"iter_{step:07d}"
    for rank in range(ranks):
        _put(new / f"mp_rank_{rank:02d}" / "model_optim_rng.pt", step)
        yield
    _swap(folder / "latest_checkpointed_iteration.txt", f"{step}")
    _keep_newest(folder, "iter_*")


def read_megatron(folder: Path) -> int | None:
    return _number(folder / "latest_checkpointed_iteration.txt", r"(\d+)")


def write_deepspeed(folder: Path, step: int, ranks: int) -> Write:
    new = folder / f"global_step{step}"
    _put(new / "mp_rank_00_model_states.pt", step)
    for rank in range(ranks):
        _put(new / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt", step)
        yield
    _swap(folder / "latest", new.name)
    _keep_newest(folder, "global_step*")


def read_deepspeed(folder: Path) -> int | None:
    return _number(folder / "latest", r"global_step(\d+)")


def write_dcp(folder: Path, step: int, ranks: int) -> Write:
    new = folder / f"step-{step}"
    for rank in range(ranks):
        _put(new / f"__{rank}_0.distcp", step)
        yield
    _swap(new / ".metadata", "{}")
    _keep_newest(folder, "step-*")


def read_dcp(folder: Path) -> int | None:
    return _highest(mark.parent.name for mark in folder.glob("step-*/.metadata"))


def write_huggingface(folder: Path, step: int, ranks: int) -> Write:
    new = folder / f"checkpoint-{step}"
    for rank in range(1, ranks + 1):
        _put(new / f"model-{rank:05d}-of-{ranks:05d}.safetensors", step)
        yield
    _put(new / "optimizer.pt", step)
    _swap(new / "trainer_state.json", json.dumps({"global_step": step, "log_history": []}, indent=2))
    _keep_newest(folder, "checkpoint-*")


def read_huggingface(folder: Path) -> int | None:
    return _highest(state.parent.name for state in folder.glob("checkpoint-*/trainer_state.json"))


def write_lightning(folder: Path, step: int, ranks: int) -> Write:
    fresh = folder / "last.ckpt.tmp"
    for _ in range(ranks):
        _put(fresh, step)
        yield
    fresh.replace(folder / "last.ckpt")


def read_lightning(folder: Path) -> int | None:
    return _number(folder / "last.ckpt", r"step (\d+)")


def write_nemo(folder: Path, step: int, ranks: int) -> Write:
    stem = f"gpt--step={step}-last"
    marker = folder / f"{stem}-unfinished"
    marker.parent.mkdir(parents=True, exist_ok=True)
    marker.touch()
    for rank in range(ranks):
        _put(folder / f"mp_rank_{rank:02d}" / f"{stem}.ckpt", step)
        yield
    marker.unlink()
    for path in folder.glob("mp_rank_*/gpt--step=*-last.ckpt"):
        if path.stem != stem:
            path.unlink()


def read_nemo(folder: Path) -> int | None:
    unfinished = {path.name.removesuffix("-unfinished") for path in folder.glob("*-unfinished")}
    return _highest(found.stem for found in folder.glob("mp_rank_00/*-last.ckpt") if found.stem not in unfinished)


def write_orbax(folder: Path, step: int, ranks: int) -> Write:
    fresh = folder / f"{step}.orbax-checkpoint-tmp"
    shutil.rmtree(fresh, ignore_errors=True)
    begun = time.time_ns()
    _put(fresh / "_CHECKPOINT_METADATA", step, json.dumps({"init_timestamp_nsecs": begun}))
    for rank in range(ranks):
        _put(fresh / "default" / "d" / f"process_{rank}", step)
        yield
    told = {"init_timestamp_nsecs": begun, "commit_timestamp_nsecs": time.time_ns()}
    _put(fresh / "_CHECKPOINT_METADATA", step, json.dumps(told))
    new = folder / str(step)
    shutil.rmtree(new, ignore_errors=True)
    fresh.replace(new)
    _keep_newest(folder, "[0-9]*")


def read_orbax(folder: Path) -> int | None:
    return _highest(found.name for found in folder.glob("*") if found.name.isdecimal())


def write_beacon(folder: Path, step: int, ranks: int) -> Write:
    for rank in range(ranks):
        _put(folder / "data" / f"rank-{rank}.bin.tmp", step)
        yield
    for rank in range(ranks):
        (folder / "data" / f"rank-{rank}.bin.tmp").replace(folder / "data" / f"rank-{rank}.bin")
    _swap(folder / "beacon.json", json.dumps({"step": step, "time": time.time(), "complete": True}))


def read_beacon(folder: Path) -> int | None:
    return _number(folder / "beacon.json", r'"step": (\d+)')


WRITERS: dict[str, Callable[[Path, int, int], Write]] = {
    "megatron": write_megatron,
    "deepspeed": write_deepspeed,
    "dcp": write_dcp,
    "huggingface": write_huggingface,
    "lightning": write_lightning,
    "nemo": write_nemo,
    "orbax": write_orbax,
    "beacon": write_beacon,
}
READERS: dict[str, Callable[[Path], int | None]] = {
    "megatron": read_megatron,
    "deepspeed": read_deepspeed,
    "dcp": read_dcp,
    "huggingface": read_huggingface,
    "lightning": read_lightning,
    "nemo": read_nemo,
    "orbax": read_orbax,
    "beacon": read_beacon,
}


def _put(path: Path, step: int, text: str | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"step {step}\n" if text is None else text)


def _swap(path: Path, text: str) -> None:
    """The file appears whole or not at all."""
    fresh = path.with_name(f"{path.name}.tmp")
    fresh.write_text(text)
    fresh.replace(path)


def _keep_newest(folder: Path, pattern: str) -> None:
    """The others go, half-written ones of an earlier start with them."""
    found = sorted(folder.glob(pattern), key=lambda path: path.stat().st_mtime_ns)
    for path in found[:-_KEPT]:
        shutil.rmtree(path, ignore_errors=True)


def _number(path: Path, pattern: str) -> int | None:
    try:
        found = re.search(pattern, path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        return None
    return int(found[1]) if found else None


def _highest(names: Iterator[str]) -> int | None:
    steps = [int(found[1]) for name in names if (found := re.search(r"(\d+)(?:-last)?$", name))]
    return max(steps, default=None)
