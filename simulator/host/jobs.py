"""Long commands on a simulated host: programs that take simulated time, detached as jobs or waited for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from simulator.clock import SimClock
from simulator.slurm.reply import Reply, failure

_TAIL = 4000


@dataclass(frozen=True, slots=True)
class Phase:
    """`seconds` pass, then `act` happens; what it returns is printed. An exit status in its answer ends the program."""

    seconds: float
    act: Callable[[], Reply]


@dataclass(frozen=True, slots=True)
class Program:
    """Phases one after the other; `lost` is called instead of the rest where the host goes away in between."""

    phases: tuple[Phase, ...]
    lost: Callable[[], None] = lambda: None


Start = Callable[[list[str]], Program | Reply | Awaitable[Reply]]


@dataclass
class _Job:
    command: list[str]
    state: str = "running"
    code: int | None = None
    output: list[Reply] = field(default_factory=list)
    task: asyncio.Task[None] | None = None
    program: Program | None = None

    @property
    def printed(self) -> str:
        """Both streams, as they came."""
        return "".join(part.stdout + part.stderr for part in self.output)


class Jobs:
    """The jobs below /var/lib/gpufleet/jobs. `start` gives the program of a command."""

    def __init__(self, clock: SimClock, start: Start) -> None:
        self._clock = clock
        self._start = start
        self._jobs: dict[str, _Job] = {}
        self._direct: set[Program] = set()

    def begin(self, words: list[str]) -> Reply:
        """`gpufleet-job-start ID COMMAND ARG…`: a second start of the same ID changes nothing."""
        if len(words) < 2:
            return failure("no command\n", 64)
        id_, command = words[0], words[1:]
        if id_ in self._jobs:
            return Reply(0)
        job = self._jobs[id_] = _Job(command)
        started = self._start(command)
        if isinstance(started, Reply):
            self._end(job, started)
        else:
            job.program = started if isinstance(started, Program) else None
            job.task = asyncio.get_running_loop().create_task(self._follow(job, started))
        return Reply(0)

    def read(self, words: list[str]) -> Reply:
        """`gpufleet-job-read ID`: one line of JSON."""
        job = self._jobs.get(words[0] if words else "")
        told: dict[str, object] = {"state": "absent", "code": None, "tail": ""}
        if job is not None:
            told = {"state": job.state, "code": job.code, "tail": job.printed[-_TAIL:]}
        return Reply(0, f"{json.dumps(told)}\n")

    async def wait(self, program: Program) -> Reply:
        """Run a program while its caller waits."""
        self._direct.add(program)
        output: list[Reply] = []
        try:
            code = await self._phases(program, output, lambda: program in self._direct)
        finally:
            self._direct.discard(program)
        return Reply(code, "".join(part.stdout for part in output), "".join(part.stderr for part in output))

    def host_down(self) -> None:
        """Everything that ran has gone with the host; jobs are lost, as no end of them is recorded."""
        for job in self._jobs.values():
            if job.state != "running":
                continue
            job.state = "lost"
            if job.task is not None:
                job.task.cancel()
            if job.program is not None:
                job.program.lost()
        for program in [*self._direct]:
            self._direct.discard(program)
            program.lost()

    async def _follow(self, job: _Job, started: Program | Awaitable[Reply]) -> None:
        if isinstance(started, Program):
            code = await self._phases(started, job.output, lambda: job.state == "running")
            self._end(job, Reply(code))
        else:
            self._end(job, await started)

    async def _phases(self, program: Program, output: list[Reply], alive: Callable[[], bool]) -> int:
        for phase in program.phases:
            await self._clock.sleep(phase.seconds)
            if not alive():
                return 137
            answer = phase.act()
            output.append(answer)
            if answer.code:
                return answer.code
        return 0

    def _end(self, job: _Job, answer: Reply) -> None:
        job.output.append(answer)
        job.state, job.code = "ended", answer.code


def one_phase(seconds: float, act: Callable[[], Reply]) -> Program:
    """A program that does one thing after a while."""
    return Program((Phase(seconds, act),))


def printed(lines: Iterable[str]) -> Reply:
    """Lines on standard output, and status 0."""
    return Reply(0, "".join(f"{line}\n" for line in lines))
