"""When the probe is pushed, and what its ends are taken for; the rest is tested on a real sshd."""

from __future__ import annotations

import json

import pytest

from adapters.local import Finished
from adapters.probe import Probe, ProbeFile, ProbeRequest
from fleet.errors import ConfigurationError, NodeUnreachable, TransientError

DOCUMENT = json.dumps({"version": 1, "at": 1796040000, "sections": {"system": {"hostname": "gpu-0001"}}})
ANSWER = f"\n=====gpufleet-probe-begin=====\n{DOCUMENT}\n=====gpufleet-probe-end=====\n"
FILE = ProbeFile(b"the zipapp", "d" * 64)


class ScriptedHost:
    """Gives one answer after the other, and keeps what it was asked."""

    def __init__(self, *answers: Finished) -> None:
        self._answers = list(answers)
        self.commands: list[tuple[str, ...]] = []
        self.files: list[tuple[str, bytes, str]] = []

    def run(self, arguments: tuple[str, ...], timeout_seconds: float = 60.0) -> Finished:
        self.commands.append(arguments)
        return self._answers.pop(0)

    def put(self, path: str, content: bytes, digest: str, timeout_seconds: float = 60.0) -> None:
        self.files.append((path, content, digest))

    def close(self) -> None:
        """Nothing is kept open."""


def test_a_probe_that_is_there_is_not_sent() -> None:
    host = ScriptedHost(Finished(0, ANSWER, ""))
    assert Probe(host, "gpu-0001", FILE).read().hostname == "gpu-0001"
    assert host.files == []


def test_a_probe_that_is_missing_is_sent_once_and_run_again() -> None:
    host = ScriptedHost(Finished(85, "", ""), Finished(0, ANSWER, ""))
    assert Probe(host, "gpu-0001", FILE).read().hostname == "gpu-0001"
    assert host.files == [(f".cache/gpufleet/probe-{'d' * 16}.pyz", b"the zipapp", "d" * 64)]
    assert host.commands[0] == host.commands[1]


def test_a_probe_that_does_not_stay_is_not_sent_for_ever() -> None:
    host = ScriptedHost(Finished(85, "", ""), Finished(85, "", ""))
    with pytest.raises(ConfigurationError, match=r"gpu-0001: the probe was written to \.cache.*is not there as it was"):
        Probe(host, "gpu-0001", FILE).read()
    assert len(host.files) == 1


def test_the_document_is_cut_out_of_whatever_stands_around_it() -> None:
    around = f"Welcome {{}} to\r\ngpu-0001\n{ANSWER}\nlogout\nbye =====\n"
    assert Probe(ScriptedHost(Finished(0, around, "")), "gpu-0001", FILE).read().hostname == "gpu-0001"


def test_a_document_with_another_exit_status_is_still_a_document() -> None:
    assert Probe(ScriptedHost(Finished(1, ANSWER, "a shell's complaint")), "gpu-0001", FILE).read().hostname


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (Finished(83, "", ""), ConfigurationError, "no python3 on its PATH"),
        (Finished(84, "", "Python 3.6.8\nPython 3.7.1\n"), ConfigurationError, "Python 3.6.8, Python 3.7.1 is too old"),
        (Finished(127, "", "sh: not found"), ConfigurationError, r"exit status 127\): sh: not found"),
        (Finished(1, "", "Traceback\nMemoryError"), ConfigurationError, r"exit status 1\): MemoryError"),
        (Finished(0, "", ""), ConfigurationError, "runs no commands, it answers: nothing"),
        (Finished(0, "no login \x1b[2J", ""), ConfigurationError, "answers: no login \ufffd"),
        (Finished(-1, "", ""), NodeUnreachable, "ended by a signal"),
        (Finished(0, ANSWER[:60], ""), TransientError, "cut off"),
        (Finished(0, ANSWER.replace('"version": 1', '"version": 2'), ""), ConfigurationError, "version 2"),
    ],
)
def test_every_end_is_taken_for_what_it_is(answer: Finished, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        Probe(ScriptedHost(answer), "gpu-0001", FILE).read()


def test_the_request_becomes_arguments_and_the_command_stays_on_one_line() -> None:
    host = ScriptedHost(Finished(0, ANSWER, ""))
    request = ProbeRequest(("gpus", "kernel_log"), "kmsg:boot:7", 12.5, "/host", "/lib/libnvidia-ml.so.1")
    Probe(host, "gpu-0001", FILE, folder="/var/tmp/ops").read(request)
    command = host.commands[0]
    assert command[5:] == (
        f"/var/tmp/ops/probe-{'d' * 16}.pyz",
        "d" * 64,
        "--root=/host",
        "--deadline=12.5",
        "--sections=gpus,kernel_log",
        "--cursor=kmsg:boot:7",
        "--nvml=/lib/libnvidia-ml.so.1",
    )
    assert not any("\n" in word or "!" in word for word in command)
