"""What package managers print, read by shape: other languages, cut-off ends, packages that are half there."""

from __future__ import annotations

import random

import pytest

from fleet.driver_packages import JobFault, fault_line, job_fault, last_words, lock_holder
from fleet.driver_packages_apt import read_audit, read_installed, read_names, read_policy, read_records, read_simulation
from fleet.driver_packages_rpm import read_available, read_rpms, read_version_locks

POLICY = """\
nvidia-utils-570-server:
  Installiert:           570.133.20-0ubuntu0.24.04.1
  Installationskandidat: 570.172.08-0ubuntu0.24.04.1
  Versionstabelle:
     570.172.08-0ubuntu0.24.04.1 500 (phased 20%)
        500 http://mirror.example/ubuntu noble-updates/restricted amd64 Packages
        500 http://mirror.example/ubuntu noble-security/restricted amd64 Packages
 *** 570.133.20-0ubuntu0.24.04.1 100
        100 /var/lib/dpkg/status
nvidia-open:
  Installed: (none)
  Candidate: 580.95.05-1
  Version table:
     580.95.05-1 600
        600 file:/srv/repo ./ Packages
"""


def test_a_policys_versions_and_repositories_are_read_in_any_language() -> None:
    found = {(one.name, one.version): len(one.sources) for one in read_policy(POLICY.replace("\n", "\r\n"))}
    assert found == {
        ("nvidia-utils-570-server", "570.172.08-0ubuntu0.24.04.1"): 2,
        ("nvidia-utils-570-server", "570.133.20-0ubuntu0.24.04.1"): 0,
        ("nvidia-open", "580.95.05-1"): 1,
    }


def test_packages_that_are_half_there_are_not_whole_and_removed_ones_are_not_there() -> None:
    text = (
        "a\t1\tii \tamd64\nb\t1\thi \tamd64\nc\t1\tiF \tamd64\nd\t1\tiU \tall\ne\t1\trc \tamd64\n"
        "f\t\tun \t\ng\t2\tiiR\tamd64\nh\t1\tit \tamd64\r\nnonsense\n"
    )
    found = {one.name: (one.hold, one.whole) for one in read_installed(text)}
    assert found == {
        "a": (False, True),
        "b": (True, True),
        "c": (False, False),
        "d": (False, False),
        "g": (False, False),
        "h": (False, False),
    }


def test_an_audit_names_packages_and_words_without_names_still_count() -> None:
    text = "The following packages are only half configured, probably due to problems:\n nvidia-dkms-580  NVIDIA DKMS\n"
    assert read_audit(text) == ("nvidia-dkms-580",)
    assert read_audit("") == ()
    assert read_audit("something odd\n") == ("something odd",)


def test_a_record_without_a_digest_has_none() -> None:
    text = f"Package: a\nVersion: 1\nSHA256: {'AB' * 32}\nSize: 12\n\nPackage: b\nVersion: 2\nStatus: install ok\n"
    assert [(r.name, r.sha256, r.size_bytes) for r in read_records(text)] == [("a", "ab" * 32, 12), ("b", None, None)]


def test_a_simulation_tells_what_comes_goes_and_why_not() -> None:
    out = "Remv a [1]\nInst b [1] (2 repo [amd64]) []\nInst c:i386 (3 repo [i386])\nConf b (2 repo [amd64])\n"
    told = read_simulation(0, out, "")
    assert (told.installs, told.removes, told.refusal) == ({"b": "2", "c": "3"}, ("a",), "")
    refused = read_simulation(100, "", "E: Version '9' for 'b' was not found\n")
    assert "was not found" in refused.refusal
    assert read_simulation(0, "WARNING: The following packages cannot be authenticated!\n  b\n", "").unauthenticated


def test_holds_are_names_and_nothing_else() -> None:
    assert read_names("linux-image-generic\nnvidia-dkms-570:amd64\nE: something is wrong\n") == (
        "linux-image-generic",
        "nvidia-dkms-570:amd64",
    )


def test_rpms_are_read_with_their_epoch_and_other_lines_tell_of_none() -> None:
    text = "nvidia-driver\t3:580.95.05-1.el9\tx86_64\npackage x is not installed\nkernel\t5.14.0-1.el9\tx86_64\n"
    assert [(p.name, p.version) for p in read_rpms(text)] == [
        ("nvidia-driver", "3:580.95.05-1.el9"),
        ("kernel", "5.14.0-1.el9"),
    ]


def test_a_long_name_in_a_dnf_list_has_a_line_of_its_own() -> None:
    text = (
        "Available Packages\nnvidia-driver.x86_64        3:580.95.05-1.el9       cuda-rhel9-x86_64\n"
        "nvidia-driver-cuda-libs-and-more.x86_64\n                 3:580.95.05-1.el9   cuda-rhel9-x86_64\n"
        "Error: No matching Packages to list\n"
    )
    assert [(o.name, o.version) for o in read_available(text)] == [
        ("nvidia-driver", "3:580.95.05-1.el9"),
        ("nvidia-driver-cuda-libs-and-more", "3:580.95.05-1.el9"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "nvidia-driver-3:580.95.05-1.el9.*\nkernel-0:5.14.0-503.el9.*\n",
        "# Added by 'versionlock add'\nPackage name: nvidia-driver\nevr = 3:580.95.05-1\nPackage name: kernel\n",
    ],
)
def test_version_locks_of_dnf_4_and_5_are_read(text: str) -> None:
    assert {"nvidia-driver", "kernel"} <= set(read_version_locks(text))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 4121 (unattended-upgr)", "locked"),
        ("E: Sperre /var/lib/dpkg/lock-frontend konnte nicht bekommen werden. (11: Prozess 4121)", "locked"),
        ("dpkg: error: dpkg frontend lock was locked by another process with pid 4121", "locked"),
        ("Waiting for process with pid 4121 to finish.", "locked"),
        ("E: dpkg was interrupted, you must manually run 'dpkg --configure -a' to correct the problem.", "interrupted"),
        ("E: Failed to fetch http://m/x.deb  Hash Sum mismatch", "digest"),
        ("E: Failed to fetch http://m/x.deb  File has unexpected size (3 != 4). Mirror sync in progress?", "digest"),
        ("E: The repository 'file:/repo ./ Release' is not signed.", "unsigned"),
        ("W: GPG error: http://m InRelease: NO_PUBKEY A4B469963BF863CC", "unsigned"),
        ("E: There were unauthenticated packages and -y was used without --allow-unauthenticated", "unsigned"),
        ("Error: GPG check FAILED", "unsigned"),
        ("E: Version '580.95.05-1' for 'nvidia-open' was not found", "not_offered"),
        ("Error: Unable to find a match: nvidia-open-3:580", "not_offered"),
        ("E: You don't have enough free space in /var/cache/apt/archives/.", "no_space"),
        ("tar: x: Cannot write: No space left on device", "no_space"),
        ("Err:1 http://m\n  Temporary failure resolving 'm'", "network"),
        ("Error! Bad return status for module build on kernel: 6.8.0-45-generic (x86_64)", "module_not_built"),
        ("The following packages have unmet dependencies:\n a : Depends: b (= 1)", "conflict"),
        ("something else", "other"),
        ("", "other"),
    ],
)
def test_each_fault_of_a_job_is_told_apart(text: str, fault: str) -> None:
    assert job_fault(text) is JobFault(fault)


def test_who_holds_the_lock_is_named_where_it_is_said() -> None:
    line = "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 4121 (unattended-upgr)"
    assert lock_holder(f"Reading\n{line}\nN: Be aware") == "process 4121 (unattended-upgr)"
    assert lock_holder("dpkg frontend lock was locked by another process with pid 77") == "process 77"
    assert lock_holder("E: Could not open lock file /var/lib/dpkg/lock-frontend - open (13: Permission denied)") == ""
    assert lock_holder("") == ""


def test_the_line_that_shows_the_fault_is_told_and_not_only_the_last_error() -> None:
    text = "Err:1 file:/r ./ InRelease\n  The following signatures couldn't be verified: NO_PUBKEY 0123456789\nE: x\n"
    assert "NO_PUBKEY" in fault_line(text)
    assert fault_line("a\nb\n") == "a; b"


def test_last_words_are_the_errors_where_there_are_some() -> None:
    assert last_words("a\nE: no\nb\n") == "E: no"
    assert last_words("a\nb\r\nc\nd\n") == "b; c; d"
    assert last_words("") == ""


def test_no_text_makes_a_reader_fail() -> None:
    rng = random.Random(7)
    readers = (read_installed, read_audit, read_names, read_policy, read_records, read_rpms, read_available)
    for _ in range(300):
        text = POLICY[: rng.randrange(len(POLICY))] + "".join(chr(rng.randrange(1, 0x2500)) for _ in range(20))
        for read in (*readers, read_version_locks, job_fault, lock_holder, last_words):
            read(text)
        read_simulation(rng.randrange(256), text, text)
