"""Every kernel log of the public corpus has its right value; files are read in place."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.findings import Action, Explanation, Finding, Severity
from fleet.readers import fabric_manager, kernel_log

pytestmark = pytest.mark.corpus


@pytest.fixture
def corpus(shared: Path) -> Path:
    return shared / "corpus" / "dmesg"


def _explained(corpus: Path, name: str) -> Explanation:
    text = (corpus / name).read_text()
    assert kernel_log.recognises(text)
    return kernel_log.explain(text)


def _only(corpus: Path, name: str) -> Finding:
    (finding,) = _explained(corpus, name).findings
    return finding


@pytest.mark.parametrize(
    ("name", "subject", "code", "severity", "action"),
    [
        ("xid79_bare_old.txt", "gpu 0000:01:00", "xid.79", Severity.FATAL, Action.REBOOT_NODE),
        ("xid79_with_fn.txt", "gpu 0000:b3:00", "xid.79", Severity.FATAL, Action.REBOOT_NODE),
        ("fallen_single_no_xid.txt", "gpu 0000:29:00", "xid.79", Severity.FATAL, Action.REBOOT_NODE),
        ("fallen_multiline.txt", "gpu 0000:b3:00", "xid.79", Severity.FATAL, Action.REBOOT_NODE),
        ("xid63_remapped.txt", "gpu 0000:04:00", "xid.63", Severity.WARNING, Action.WATCH),
        ("xid64_blacklist.txt", "gpu 0000:07:00", "xid.64", Severity.ERROR, Action.REPLACE_PART),
        ("xid48_ctxswitch_odd.txt", "gpu 0000:03:00", "xid.48", Severity.ERROR, Action.RESET_GPU),
        ("xid94_contained.txt", "gpu 0000:00:08", "xid.94", Severity.WARNING, Action.RESTART_APPLICATION),
        ("xid119_gsp.txt", "gpu 0000:9b:00", "xid.119", Severity.ERROR, Action.RESET_GPU),
        ("xid119_storm_full.log", "gpu 0000:9b:00", "xid.119", Severity.ERROR, Action.RESET_GPU),
        ("xid145_pid_ray.txt", "gpu 0018:01:00", "xid.145", Severity.INFO, Action.WATCH),
        ("xid149_neg_link.txt", "gpu 0019:01:00", "xid.149", Severity.ERROR, Action.RESET_GPU),
        ("xid149_double_space.txt", "gpu 0009:01:00", "xid.149", Severity.ERROR, Action.RESET_GPU),
        ("xid146_slash.txt", "gpu 0000:04:00", "xid.146", Severity.ERROR, Action.RESET_GPU),
        ("xid154_changed_again.txt", "gpu 0019:01:00", "xid.154", Severity.ERROR, Action.RESET_GPU),
        ("xid43_channel.txt", "gpu 0000:38:00", "xid.43", Severity.INFO, Action.NONE),
        ("xid13_bursts.txt", "gpu 0000:38:00", "xid.13", Severity.WARNING, Action.RESTART_APPLICATION),
        ("xid_name_brackets.txt", "gpu 0002:00:00", "xid.119", Severity.ERROR, Action.RESET_GPU),
        ("xid_unknown_999.txt", "gpu 0000:3b:00", "xid.999", Severity.WARNING, Action.INVESTIGATE),
        ("sxid_fatal.txt", "switch 0000:06:00.0", "sxid.20034", Severity.FATAL, Action.RESET_FABRIC),
        ("sxid_data_line.txt", "switch 0000:05:00.0", "sxid.20034", Severity.INFO, Action.INVESTIGATE),
        ("sxid_soe_noseverity.txt", "switch 0004:00:00.0", "sxid.26006", Severity.ERROR, Action.RESET_FABRIC),
        ("aer_correctable_new.txt", "port 0000:00:03.1", "pcie.aer_corrected", Severity.INFO, Action.WATCH),
        ("mce_apei_pcie.txt", "nvme 0000:5e:00.0", "pcie.firmware_uncorrected", Severity.ERROR, Action.CHECK_LINK),
        ("mlx5_nobdf.txt", "nic unknown", "nic.hardware_error", Severity.FATAL, Action.REPLACE_PART),
        ("rminit_failed.txt", "gpu 0000:0a:00", "gpu.init_failed", Severity.FATAL, Action.REBOOT_NODE),
        ("nova_bound.txt", "gpu 0000:01:00", "driver.conflict", Severity.ERROR, Action.FIX_CONFIGURATION),
    ],
)
def test_the_one_fault_of_a_log_is_found(
    corpus: Path, name: str, subject: str, code: str, severity: Severity, action: Action
) -> None:
    found = _only(corpus, name)
    assert (found.subject, found.code, found.severity, found.action) == (subject, code, severity, action)


def test_corrected_memory_errors_of_a_dimm_are_no_alarm(corpus: Path) -> None:
    found = _only(corpus, "mce_edac_ce.txt")
    assert (found.code, found.severity, found.action) == ("memory.corrected", Severity.INFO, Action.WATCH)
    assert found.subject.startswith("dimm CPU_SrcID#1")


def test_a_surprise_down_explains_the_lost_gpu(corpus: Path) -> None:
    port, gpu = _explained(corpus, "aer_fatal_old.txt").findings
    assert (port.subject, port.code) == ("port 0000:00:02.0", "pcie.aer_fatal")
    assert (gpu.subject, gpu.code) == ("gpu 0000:02:00", "xid.79")
    assert "pcie.aer_fatal" in gpu.text
    assert "Surprise Down" in port.text


def test_a_storm_is_one_incident_whose_true_count_is_not_known(corpus: Path) -> None:
    explained = _explained(corpus, "xid119_storm_full.log")
    (finding,) = explained.findings
    assert "Seen 5 times" in finding.text
    assert any("how often gpu 0000:9b:00" in said for said in explained.unknown)
    gpu = next(subject for subject in explained.subjects if subject.name == "gpu 0000:9b:00")
    assert gpu.facts == {"uuid": "GPU-b5369b98-492a-3bf0-19ce-d8239598b4e8", "serial": "5312029626512"}


def test_a_code_that_contradicts_its_words_stands_and_is_reported(corpus: Path) -> None:
    assert any("Xid 109" in said for said in _explained(corpus, "xid48_ctxswitch_odd.txt").unknown)


def test_an_sxid_without_a_number_is_unknown_and_not_zero(corpus: Path) -> None:
    explained = _explained(corpus, "sxid_invalid.txt")
    assert explained.findings == ()
    assert any("SXid" in said for said in explained.unknown)


def test_which_network_adapter_failed_is_unknown_without_an_address(corpus: Path) -> None:
    assert any("which nic" in said for said in _explained(corpus, "mlx5_nobdf.txt").unknown)


def test_a_reset_of_a_gpu_known_by_uuid_is_no_fault(corpus: Path) -> None:
    found = _only(corpus, "gpu_reset_ok.txt")
    assert (found.code, found.severity) == ("gpu.reset", Severity.INFO)
    assert found.subject == "gpu GPU-dae43a2d-646a-581e-e318-2f9a53e129eb"


def test_a_fabric_manager_of_another_version_is_found(corpus: Path) -> None:
    text = (corpus / "fm_version_mismatch.txt").read_text()
    assert fabric_manager.recognises(text)
    assert not kernel_log.recognises(text)
    for explained in (fabric_manager.explain(text), kernel_log.explain(text)):
        (found,) = explained.findings
        assert (found.code, found.action) == ("fabric_manager.version_mismatch", Action.UPDATE_SOFTWARE)
        assert "530.30.02" in found.text
        assert "530.41.03" in found.text


def test_every_kernel_log_of_the_corpus_has_a_finding_or_says_what_is_unknown(corpus: Path) -> None:
    for path in sorted(corpus.iterdir()):
        explained = kernel_log.explain(path.read_text())
        assert explained.findings or explained.unknown, path.name


@pytest.mark.parametrize("change", ["line ends", "mark", "syslog", "tail", "colours"])
def test_what_a_way_adds_to_a_log_changes_none_of_its_findings(corpus: Path, change: str) -> None:
    for path in sorted(corpus.iterdir()):
        text = path.read_text()
        changed = {
            "line ends": text.replace("\n", "\r\n"),
            "mark": "\ufeff" + text,
            "syslog": "".join(f"Feb 23 16:24:18 node-1 kernel: {line}\n" for line in text.splitlines()),
            "tail": f"$ dmesg -T | tail -50\n{text}\n-- no more --\n",
            "colours": "".join(f"\x1b[33m{line}\x1b[0m\n" for line in text.splitlines()),
        }[change]
        before, after = ([(f.subject, f.code, f.severity, f.action) for f in _all(each)] for each in (text, changed))
        assert before == after, path.name


def _all(text: str) -> tuple[Finding, ...]:
    return kernel_log.explain(text).findings


def test_no_other_kind_of_the_corpus_is_taken_for_a_kernel_log(corpus: Path) -> None:
    kinds = ("nvsmi", "dcgm", "slurm", "redfish", "net", "fwver")
    files = [path for kind in kinds for path in sorted((corpus.parent / kind).iterdir()) if path.is_file()]
    taken = [path.name for path in files if kernel_log.recognises(path.read_text(errors="replace"))]
    assert taken == []
    assert [path.name for path in files if fabric_manager.recognises(path.read_text(errors="replace"))] == []
