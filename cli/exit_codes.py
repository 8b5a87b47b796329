"""How the `gpufleet` command ends.

0 OK           done, or read completely
1 FAILED       it was tried and did not work; the ledger is full, read-only or damaged; a verdict that fails
2 USAGE        the command line, the fleet file or a key is wrong, or nothing runs
3 PROBLEMS     read, but not completely: the problems are listed; a verdict that is inconclusive
4 UNREACHABLE  nothing answered, or it asked for patience for too long
5 CREDENTIALS  the system refused the credentials: do not simply try again
6 NOT_FOUND    no such node, pool, rack, operation, gate or file, or it is not in the state for that
7 HALTED       the operation waits for a person
8 REFUSED      a policy or a gate says no
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Documented at the top of this file."""

    OK = 0
    FAILED = 1
    USAGE = 2
    PROBLEMS = 3
    UNREACHABLE = 4
    CREDENTIALS = 5
    NOT_FOUND = 6
    HALTED = 7
    REFUSED = 8


OK = ExitCode.OK
FAILED = ExitCode.FAILED
USAGE = ExitCode.USAGE
PROBLEMS = ExitCode.PROBLEMS
UNREACHABLE = ExitCode.UNREACHABLE
CREDENTIALS = ExitCode.CREDENTIALS
NOT_FOUND = ExitCode.NOT_FOUND
HALTED = ExitCode.HALTED
REFUSED = ExitCode.REFUSED
