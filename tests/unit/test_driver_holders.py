"""Who holds a GPU, how that is told, and whom we may stop; and what the host's answers are read as."""

from __future__ import annotations

import pytest
from unit.site_fakes import Answer

from adapters.driver_host import DriverHost, Elevated
from adapters.runfile import install_command
from fleet.driver_holders import Holder, blocked_text, foreign, loaded_modules, read_holders, unit_of
from fleet.driver_target import ModuleFlavour, RunfilePin
from fleet.errors import ConfigurationError, TransientError
from fleet.node_reading import read_node

KNOWN = ("nvidia-dcgm", "nvidia-persistenced", "slurmd")
LINES = (
    "4121\tnv-hostengine\troot\tnvidia-dcgm.service\t/dev/nvidia0\n4121\tnv-hostengine\troot\tnvidia-dcgm.service\t/x\n"
    "5180\tnvidia-persiste\tnvidia-persistenced\t-\t/dev/nvidiactl\r\n"
    "9000\tpython3\teva\tdocker-0123456789abcdef0123.scope\t/dev/nvidia1\n"
    "nonsense\n1\t2\n\t\t\t\t\n"
)


def test_each_process_is_told_once_and_odd_lines_tell_of_none() -> None:
    assert [holder.pid for holder in read_holders(LINES)] == [4121, 5180, 9000]


def test_known_services_are_known_by_their_unit_and_else_by_their_name() -> None:
    engine, daemon, stranger = read_holders(LINES)
    assert (unit_of(engine, KNOWN), unit_of(daemon, KNOWN), unit_of(stranger, KNOWN)) == (
        "nvidia-dcgm",
        "nvidia-persistenced",
        None,
    )
    assert foreign(read_holders(LINES), KNOWN) == (stranger,)


def test_a_program_with_a_services_name_in_anothers_unit_is_a_stranger() -> None:
    holder = Holder(7, "nvidia-dcgm", "eva", "session-4.scope", "/dev/nvidia0")
    assert unit_of(holder, KNOWN) is None


def test_a_blocked_node_names_pid_command_and_owner() -> None:
    text = blocked_text("Module nvidia is in use.", read_holders(LINES)[2:], ("nvidia_fs",), 3)
    assert "pid 9000 (python3) of eva, container docker 0123456789ab, holds /dev/nvidia1" in text
    assert "the kernel module nvidia_fs uses it" in text
    assert "3 uses" in blocked_text("in use", (), (), 3)


def test_modules_that_sit_on_the_driver_are_unloaded_before_it() -> None:
    text = (
        '{"version": 1, "at": 1796040000, "probe": {}, "sections": {"driver": {"modules": {'
        '"nvidia": {"holders": ["nvidia_uvm", "nvidia_fs", "odd"]}, "nvidia_uvm": {"holders": []}, "gdrdrv": {}}}}}'
    )
    assert loaded_modules(read_node(text)) == ("gdrdrv", "nvidia_fs", "nvidia_uvm", "nvidia")
    assert loaded_modules(read_node('{"version": 1, "at": 1796040000, "sections": {}, "probe": {}}')) is None


class Says:
    """A host that gives one answer and remembers what it was asked."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.asked: list[tuple[str, ...]] = []

    def run(self, arguments: tuple[str, ...], timeout_seconds: float = 60.0) -> Answer:
        self.asked.append(arguments)
        return self.answer

    def put(self, path: str, content: bytes, digest: str, timeout_seconds: float = 60.0) -> None:
        """Takes any file."""

    def close(self) -> None:
        """Nothing is kept open."""


def host(answer: Answer) -> DriverHost:
    return DriverHost(Says(answer), "gpu-0001")


def test_services_whose_states_do_not_all_come_are_asked_for_again() -> None:
    assert host(Answer(3, "active\ninactive\n")).active_units(("a", "b")) == ("a",)
    with pytest.raises(TransientError, match="which services run"):
        host(Answer(1, "", "Failed to connect to bus")).active_units(("a", "b"))


def test_free_space_is_read_only_where_every_place_answers() -> None:
    rows = "Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/x 10 1 2097152 9% /\n"
    assert host(Answer(0, rows)).free_mib(("/usr",)) == {"/usr": 2048}
    assert host(Answer(1, rows)).free_mib(("/usr", "/boot")) == {}


def test_a_boot_id_that_is_none_is_asked_for_again() -> None:
    with pytest.raises(TransientError, match="no boot id"):
        host(Answer(0, "cat: x\n")).boot_id()


def test_a_module_that_is_not_signed_has_an_empty_signer_and_a_missing_one_none() -> None:
    assert host(Answer(0, "\n")).module_signer("6.8") == ""
    assert host(Answer(1, "", "not found")).module_signer("6.8") is None


def test_sudo_goes_before_what_needs_root_and_its_refusal_is_told() -> None:
    says = Says(Answer(0, "inactive\n"))
    DriverHost(says, "gpu-0001", sudo=True).active_units(("a",))
    assert says.asked == [("sudo", "-n", "systemctl", "is-active", "a")]
    with pytest.raises(ConfigurationError, match="sudo refuses"):
        Elevated(Says(Answer(1, "", "sudo: a password is required\n"))).run(("true",))


def test_a_command_of_our_own_that_fails_is_no_refusal_of_sudo() -> None:
    assert Elevated(Says(Answer(1, "", "modprobe: FATAL: Module nvidia is in use."))).run(("modprobe",)).code == 1


def test_the_runfile_is_told_the_modules_kind_where_its_default_is_another() -> None:
    file = RunfilePin(path="/srv/x.run")
    assert install_command(file, "580.95.05", ModuleFlavour.OPEN)[-1] == "--ui=none"
    assert install_command(file, "580.95.05", ModuleFlavour.PROPRIETARY)[-1] == "--kernel-module-type=proprietary"
    assert install_command(file, "550.54.15", ModuleFlavour.OPEN)[-1] == "--kernel-module-type=open"
