"""One and the same line in every format in which a kernel log reaches an operator."""

from __future__ import annotations

import json

import pytest

from fleet.readers.kernel_log import read_kernel_log, recognises
from fleet.readers.log_records import LogRecord, read_records

MESSAGE = "NVRM: Xid (PCI:0000:3b:00): 79, pid=7, name=a, GPU has fallen off the bus."


@pytest.mark.parametrize(
    ("prefix", "time", "host"),
    [
        ("", None, None),
        ("[  123.456789] ", "123.456789", None),
        ("[  123,456789] ", "123.456789", None),
        ("[  123.456789][ T4321] ", "123.456789", None),
        ("[  123.456789 <    0.000012>] ", "123.456789", None),
        ("<4>[  123.456789] ", "123.456789", None),
        ("kern  :warn  : [  123.456789] ", "123.456789", None),
        ("[Sun Feb 23 16:24:18 2025] ", "Sun Feb 23 16:24:18 2025", None),
        ("[So Feb 23 16:24:18 2025] ", "So Feb 23 16:24:18 2025", None),
        ("[dim. févr. 23 16:24:18 2025] ", "dim. févr. 23 16:24:18 2025", None),
        ("[Feb23 16:24] ", "Feb23 16:24", None),
        ("[  +0.000123] ", None, None),
        ("2025-01-21T04:41:44,283302+00:00 ", "2025-01-21T04:41:44,283302", None),
        ("kern  :warn  : 2025-01-21T04:41:44,283302+00:00 ", "2025-01-21T04:41:44,283302", None),
        ("Feb 23 16:24:18 node-1 kernel: ", "Feb 23 16:24:18", "node-1"),
        ("Feb 23 16:24:18 node-1 kernel: [  123.456789] ", "Feb 23 16:24:18", "node-1"),
        ("Feb 23 16:24:18  kernel: ", "Feb 23 16:24:18", None),
        ("févr. 23 16:24:18 node-1 kernel: ", "févr. 23 16:24:18", "node-1"),
        ("11月 15 14:15:47 node-1 kernel: ", "11月 15 14:15:47", "node-1"),
        ("2025-02-23T16:24:18.123456+01:00 node-1 kernel: ", "2025-02-23T16:24:18.123456", "node-1"),
        ("2025-02-23T16:24:18+0100 node-1 kernel: ", "2025-02-23T16:24:18", "node-1"),
        ("Sun 2025-02-23 16:24:18 UTC node-1 kernel: ", "2025-02-23 16:24:18", "node-1"),
        ("<4>1 2025-02-23T16:24:18.123Z node-1 kernel - - - ", "2025-02-23T16:24:18.123", "node-1"),
        ("[  123.456789] node-1 kernel: ", "123.456789", "node-1"),
        ("kernel: [16450076.435595] ", "16450076.435595", None),
        ("4,1234,123456789,-;", None, None),
        ("node-1: [  123.456789] ", "123.456789", "node-1"),
        ("2025-02-23T16:24:18.123456789Z stderr F [  123.456789] ", "2025-02-23T16:24:18.123456789", None),
        ("/var/log/kern.log:17:", None, None),
        ("\x1b[32m[  123.456789] \x1b[0m\x1b[33m", "123.456789", None),
    ],
)
def test_a_prefix_changes_nothing_of_what_is_read(prefix: str, time: str | None, host: str | None) -> None:
    text = f"{prefix}{MESSAGE}\n"
    assert recognises(text)
    (event,) = read_kernel_log(text).xids
    assert (event.code, event.device, event.time, event.host) == (79, "0000:3b:00", time, host)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\n\n", "  \r\n"])
def test_line_ends_of_every_system_separate_records(end: str) -> None:
    assert [record.message for record in read_records(f"[1.5] a{end}[2.5] b{end}")] == ["a", "b"]


def test_a_mark_before_the_text_and_zero_bytes_are_passed_over() -> None:
    assert [record.message for record in read_records("\ufeff[1.5] a\x00b\n")] == ["ab"]


def test_the_device_of_a_kmsg_record_is_in_its_continuation() -> None:
    text = "3,1234,123456789,-;mlx5_core: unrecoverable hardware error\n SUBSYSTEM=pci\n DEVICE=+pci:0000:5e:00.0\n"
    (record,) = read_records(text)
    assert (record.device, record.seconds) == ("0000:5e:00.0", 123.456789)
    (event,) = read_kernel_log(text).events
    assert event.subject == "nic 0000:5e:00.0"


def _journal(**fields: object) -> str:
    return json.dumps({"MESSAGE": MESSAGE, "_TRANSPORT": "kernel", "_HOSTNAME": "node-1", **fields})


@pytest.mark.parametrize(
    "text",
    [
        _journal(),
        _journal(_SOURCE_MONOTONIC_TIMESTAMP="123456789"),
        _journal(MESSAGE=list(MESSAGE.encode())),
        "\x1e" + _journal(),
        "data: " + _journal(),
        json.dumps(json.loads(_journal()), indent=8),
        json.dumps({"dmesg": [{"pri": 4, "time": 123.456, "msg": MESSAGE}]}),
        json.dumps({"log": f"[  123.456789] {MESSAGE}\n", "stream": "stdout"}),
        _journal()[:-40],
    ],
)
def test_json_of_journals_and_shippers_is_read(text: str) -> None:
    for whole in (text, text + "\n" + text + "\n"):
        (event,) = read_kernel_log(whole).xids
        assert (event.code, event.device) == (79, "0000:3b:00")


def test_the_device_of_a_journal_record_is_in_its_fields() -> None:
    text = _journal(MESSAGE="mlx5_core: unrecoverable hardware error", _KERNEL_DEVICE="+pci:0000:5e:00.0")
    (event,) = read_kernel_log(text).events
    assert (event.subject, event.host) == ("nic 0000:5e:00.0", "node-1")


@pytest.mark.parametrize("joint", ["#012", "\\x0a"])
def test_line_ends_that_a_daemon_wrote_as_escapes_separate_records(joint: str) -> None:
    text = f"Feb 23 16:24:18 n kernel: NVRM: The NVIDIA GPU 0000:b3:00.0{joint}NVRM: fallen off the bus"
    (event,) = read_kernel_log(text).xids
    assert (event.code, event.device) == (79, "0000:b3:00")


@pytest.mark.parametrize(
    "message",
    [
        "EDAC MC1: 1 CE x",
        "mce: [Hardware Error]: x",
        "[1344:51c0] x",
        "pcieport 0000:00:02.0: x",
        "{1}[Hardware Error]: x",
    ],
)
def test_what_only_looks_like_a_prefix_stays(message: str) -> None:
    assert [record.message for record in read_records(f"[  1.500000] {message}")] == [message]


def test_junk_before_and_after_is_a_record_and_no_fault() -> None:
    log = read_kernel_log(
        f"$ sudo dmesg | tail\n[1.5] {MESSAGE}\n-- Boot 0123 --\n\N{BOX DRAWINGS LIGHT HORIZONTAL} end\n"
    )
    assert (log.records, len(log.xids), log.events, log.unknown) == (4, 1, (), ())


def test_a_record_says_whether_the_text_was_cut_in_it() -> None:
    first, last = read_records("[1.5] a\n[2.5] b")
    assert (first.cut, last.cut) == (False, True)
    assert isinstance(last, LogRecord)
