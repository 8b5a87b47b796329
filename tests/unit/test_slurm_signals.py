"""Whom a signal reaches: the rule that never ends a job by asking it for a checkpoint."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.slurm_signals import (
    DeclaredSignal,
    SignalTarget,
    command_signal,
    read_signal_option,
    runs_trainer_itself,
    script_signal,
    signal_target,
    traps,
)

USR1 = DeclaredSignal("USR1", batch=False)
STEP = "#!/bin/bash\n#SBATCH -N2\nsrun python train.py\n"


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("USR1", USR1),
        ("SIGUSR1@300", USR1),
        ("usr1@300", USR1),
        ("10@60", USR1),
        ("B:USR1@60", DeclaredSignal("USR1", True)),
        ("RB:12", DeclaredSignal("USR2", True)),
        ("R:TERM@5", DeclaredSignal("TERM", False)),
        ("B:", None),
        ("99", None),
        ("NOPE", None),
        ("USR1@soon", None),
        ("", None),
    ],
)
def test_a_signal_option_is_read_as_sbatch_reads_it(text: str, read: DeclaredSignal | None) -> None:
    assert read_signal_option(text) == read


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("#!/bin/sh\n#SBATCH --signal=B:USR1@60\nsleep 1\n", "B:USR1@60"),
        ("#!/bin/sh\r\n#SBATCH --signal USR1@60\r\nsleep 1\r\n", "USR1@60"),
        ("#!/bin/sh\n#SBATCH -N 2 --signal='USR2' # a comment\n", "USR2"),
        ("#!/bin/sh\n\n# hello\n#SBATCH --signal=USR1\n#SBATCH --signal=USR2\n", "USR2"),
        ("#!/bin/sh\nsleep 1\n#SBATCH --signal=USR1\n", None),
        ("#!/bin/sh\n##SBATCH --signal=USR1\n", None),
        ("#!/bin/sh\n#SBATCH --comment='not closed --signal=USR1@5\n", "USR1@5"),
        ("", None),
    ],
)
def test_a_scripts_own_signal_is_found_before_its_first_command(script: str, found: str | None) -> None:
    assert script_signal(script) == found


def test_a_submit_lines_signal_is_found_however_it_is_written() -> None:
    assert command_signal("sbatch -N2 --signal=B:USR1@60 train.sh") == "B:USR1@60"
    assert command_signal("sbatch --signal USR1@60 --comment 'a b' train.sh") == "USR1@60"
    assert command_signal("sbatch train.sh") is None
    assert command_signal("") is None


@pytest.mark.parametrize(
    ("line", "trapped"),
    [
        ("trap 'touch now' USR1", True),
        ("trap save_now SIGUSR1 TERM", True),
        ("sleep 1; trap 'kill -USR1 $pid' 10", True),
        ("  trap save USR1  # asked by the drain", True),
        ("if true; then trap save USR1; fi", True),
        ("trap 'echo a; echo b' USR1", True),
        ('trap "echo \\"a\\"" USR1', True),
        ("trap 'one\ntwo' USR1", True),
        ("trap '' USR1", False),
        ("srun bash -c 'sleep 1; trap save USR1; python train.py'", False),
        ('srun bash -c "trap save USR1"', False),
        ("cat > run.sh <<'EOF'\ntrap save USR1\nEOF", False),
        ("echo don't # isn't\ntrap save USR2", False),
        ("# it isn't\ntrap 'save now' USR1", True),
        ("trap save TERM; echo USR1", False),
        ("trap - USR1", False),
        ("trap save USR2", False),
        ("# trap save USR1", False),
        ("echo trap save USR1", False),
        ("trap", False),
    ],
)
def test_a_trap_is_seen_where_it_is_set(line: str, trapped: bool) -> None:
    assert traps(f"#!/bin/sh\n{line}\npython train.py\n", "USR1") is trapped


@pytest.mark.parametrize(
    ("script", "itself"),
    [
        ("#!/usr/bin/python3 -IS\nmain()\n", True),
        ("#!/usr/bin/env python3\nmain()\n", True),
        ("#!/usr/bin/env -S python3 -u\nmain()\n", True),
        ("#!/bin/bash -l\nmodule load x\nexec torchrun train.py\n", True),
        ("#!/bin/bash\nexec > log 2>&1\ntorchrun train.py\n", False),
        ("#!/bin/bash\ntorchrun train.py\n", False),
        ("#!/usr/bin/env bash\ntorchrun train.py\n", False),
        ("#!\nx", False),
        ("", False),
    ],
)
def test_a_script_that_is_the_program_itself_is_told_from_a_shell_that_starts_it(script: str, itself: bool) -> None:
    assert runs_trainer_itself(script) is itself


def test_the_steps_get_the_signal_where_steps_run() -> None:
    assert signal_target(USR1, None, STEP, 1) is SignalTarget.STEPS
    assert signal_target(USR1, "USR1@300", STEP, 1) is SignalTarget.STEPS


def test_a_job_that_asked_for_its_batch_shell_gets_it_there() -> None:
    assert signal_target(USR1, "B:USR1@60", STEP, 3) is SignalTarget.BATCH
    assert signal_target(DeclaredSignal("USR1", True), None, STEP, 3) is SignalTarget.BATCH


def test_a_shell_that_traps_the_signal_gets_it_unless_the_job_asked_for_its_steps() -> None:
    script = "#!/bin/bash\ntrap 'touch save' USR1\nsrun python train.py &\nwait\n"
    assert signal_target(USR1, None, script, 1) is SignalTarget.BATCH
    assert signal_target(USR1, "USR1@60", script, 1) is SignalTarget.STEPS


def test_a_shell_without_a_trap_and_without_steps_is_never_signalled() -> None:
    assert signal_target(USR1, None, "#!/bin/bash\npython train.py\n", 0) is None
    assert signal_target(USR1, "USR1@60", "#!/bin/bash\npython train.py\n", 0) is None
    assert signal_target(USR1, None, None, 0) is None


def test_a_declaration_of_another_signal_says_nothing_about_this_one() -> None:
    assert signal_target(USR1, "B:USR2@60", "#!/bin/bash\npython train.py\n", 0) is None


def test_a_batch_process_that_trains_itself_gets_the_signal() -> None:
    assert signal_target(USR1, None, "#!/usr/bin/python3\nmain()\n", 0) is SignalTarget.BATCH


@given(st.text(), st.text(), st.integers(0, 3))
def test_any_text_has_an_answer(script: str, option: str, steps: int) -> None:
    target = signal_target(USR1, None, script, steps)
    assert target in (None, SignalTarget.BATCH, SignalTarget.STEPS)
    assert steps or target is not SignalTarget.STEPS, "there is no step to send it to"
    assert all(found is None or found for found in (script_signal(script), command_signal(option)))
    traps(f"#!/bin/sh\ntrap {script} USR1", "USR1")
