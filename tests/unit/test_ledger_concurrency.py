"""Many threads, several processes, and processes that are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from unit.ledger_tools import FakeClock, fleet_of, running, take

from fleet.budget import Granted
from ledger import Ledger
from ledger.journal import Outcome

pytest_plugins = ("unit.ledger_fixtures",)

ROOT = Path(__file__).resolve().parents[2]
WRITER = """
import sys
sys.path[:0] = [{root!r}, {tests!r}]
from unit.ledger_tools import FakeClock
from ledger import Ledger
ledger = Ledger.open(sys.argv[1], FakeClock(), actor=sys.argv[2])
for number in range(int(sys.argv[3])):
    ledger.operations.create("drain", "{{}}", "d" * 64, sys.argv[2])
    print(number, flush=True)
"""


def writer(url: str, name: str, count: int) -> subprocess.Popen[str]:
    program = WRITER.format(root=str(ROOT), tests=str(ROOT / "tests"))
    command = [sys.executable, "-c", program, url, name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_150_threads_never_take_more_than_a_rack_allows(ledger: Ledger) -> None:
    fleet_of(ledger, {"r1": 3, "r2": 2}, 40)
    owners = [running(ledger), running(ledger)]
    names = [f"r{1 + n % 2}-{n // 4}" for n in range(150)]

    def ask(number: int) -> str | None:
        answer = take(ledger, owners[number % 2], names[number])
        return names[number] if isinstance(answer, Granted) else None

    with ThreadPoolExecutor(150) as pool:
        granted = {name for name in pool.map(ask, range(150)) if name is not None}
    held = {lease.node for id, _ in owners for lease in ledger.leases.held_by(id)}
    assert held == granted
    assert sum(name.startswith("r1") for name in held) == 3
    assert sum(name.startswith("r2") for name in held) == 2
    assert ledger.audit.verify() == []


def test_threads_that_write_the_journal_leave_a_whole_chain(ledger: Ledger) -> None:
    fleet_of(ledger, {"r1": 20}, 20)
    owner = running(ledger)
    names = [f"r1-{n}" for n in range(10)]
    for name in names:
        take(ledger, owner, name)

    def work(name: str) -> None:
        for _ in range(5):
            entry = ledger.journal.begin(*owner, name, "flash", {})
            ledger.journal.finish(entry, Outcome.DONE)

    with ThreadPoolExecutor(10) as pool:
        list(pool.map(work, names))
    assert {ledger.journal.attempts(owner[0], name, "flash") for name in names} == {5}
    assert ledger.audit.verify() == []


def test_processes_that_open_an_empty_ledger_together_share_one_chain(url: str) -> None:
    writers = [writer(url, f"writer{n}", 10) for n in range(3)]
    assert [process.wait(timeout=120) for process in writers] == [0, 0, 0]
    for process in writers:
        assert process.stdout is not None
        process.stdout.close()
    ledger = Ledger.open(url, FakeClock())
    assert len(ledger.operations.list()) == 30
    assert ledger.audit.verify() == []
    ledger.close()


def test_a_writer_that_is_killed_loses_nothing_it_was_told_is_kept(url: str) -> None:
    process = writer(url, "victim", 100_000)
    assert process.stdout is not None
    told = [process.stdout.readline() for _ in range(20)]
    os.kill(process.pid, signal.SIGKILL)
    told += process.stdout.readlines()
    process.wait(timeout=60)
    process.stdout.close()
    ledger = Ledger.open(url, FakeClock())
    kept = len(ledger.operations.list())
    complete = [line for line in told if line.endswith("\n")]
    assert len(complete) <= kept <= len(complete) + 1
    assert ledger.audit.verify() == []
    assert ledger.operations.create("drain", "{}", "d", "next").id
    ledger.close()
