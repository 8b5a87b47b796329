"""How well a node is by one reading."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from fleet.gpu import GpuReading
from fleet.node_facts import facts_of_probe
from fleet.node_health import health_of, log_findings, state_findings
from fleet.node_parts import DriverReading, KernelLog
from fleet.node_reading import NodeReading

AT = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
GOOD = GpuReading(index=0, serial="1", pci_address="0000:18:00.0", lost=False, ecc_mode_current=True)
LOST = GpuReading(index=1, serial="2", pci_address="0000:29:00.0", lost=True)
DRIVER = DriverReading(loaded="570.10", on_disk="570.10", user_space="570.10", fabric_manager="570.10")
WELL = NodeReading(AT, gpus=(GOOD,), gpu_count=1, gpus_on_bus=1, driver=DRIVER)


def test_a_node_without_a_finding_is_ok() -> None:
    assert health_of(state_findings(WELL)) == "ok"


def test_a_lost_gpu_is_named_at_the_gpu_and_at_the_node() -> None:
    sick = replace(WELL, gpus=(GOOD, LOST), gpu_count=2, gpus_on_bus=2)
    facts = facts_of_probe("gpu-0001", AT, sick)
    assert facts.facts["health"].startswith("fatal: gpu 0000:29:00.0 gpu.lost")
    assert [part.facts["health"].split(",")[0] for part in facts.parts] == ["ok", "fatal: gpu.lost"]


def test_gpus_that_could_not_be_read_are_not_well() -> None:
    facts = facts_of_probe("gpu-0001", AT, replace(WELL, gpus=None, unknown={"gpus.source": "NVML hung"}))
    assert "health" not in facts.facts
    assert facts.unknown["health"] == "NVML hung"


def test_what_the_driver_does_not_show_and_parts_of_two_versions_are_faults_of_the_node() -> None:
    sick = replace(WELL, gpus_on_bus=2, driver=replace(DRIVER, user_space="580.1", fabric_manager="560.2"))
    codes = [finding.code for finding in state_findings(sick)]
    assert codes == ["gpu.count_mismatch", "driver.library_mismatch", "driver.fabric_manager_mismatch"]


def test_an_unknown_version_is_no_mismatch() -> None:
    assert state_findings(replace(WELL, driver=DriverReading(loaded="570.10"))) == ()


def test_the_kernels_words_are_findings_and_what_is_only_worth_knowing_is_not() -> None:
    lines = ("[   10.000000] NVRM: Xid (PCI:0000:29:00): 79, GPU has fallen off the bus.",)
    assert [f.code for f in log_findings(replace(WELL, kernel_log=KernelLog(lines=lines)))] == ["xid.79"]
    assert log_findings(WELL) == ()
