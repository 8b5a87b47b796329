"""Measuring a node: every value has its conditions and its evidence, and every gap has its reason."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from unit.ledger_tools import FakeClock
from unit.measure_texts import all_reduce, nvbandwidth_json, proftester

from adapters.local import Finished
from fleet.canary_settings import CanarySettings
from fleet.errors import ConfigurationError, HostKeyChanged, NodeUnreachable
from fleet.measure_record import Measurements
from fleet.measures import Phase, Sample
from tasks.measuring import Bench, measure_node

IDLE, CAPPED = "0x0000000000000001", "0x0000000000000004"
H2D = "host_to_device_memcpy_ce"
ALL: Mapping[str, object] = {}
ONLY_HBM: Mapping[str, object] = {
    "measures": {name: {"measured": False} for name in ("host_to_device", "all_reduce", "gemm")}
}
ONLY_GEMM: Mapping[str, object] = {
    "measures": {name: {"measured": False} for name in ("host_to_device", "all_reduce", "hbm_bandwidth")}
}

Answer = Finished | Exception


def _uuid(number: int) -> str:
    return f"GPU-5c89852c-d268-c3f3-1b07-005d5ae1dc{number:02d}"


@dataclass
class Kept:
    """Evidence in memory."""

    texts: dict[str, str] = field(default_factory=dict)

    def keep(self, text: str) -> str:
        digest = hashlib.sha256(text.encode()).hexdigest()
        self.texts[digest] = text
        return digest


@dataclass
class FakeHost:
    """Two GPUs. A tool runs until it was looked at twice, so that its conditions are seen; then they are idle again."""

    clock: FakeClock
    tools: dict[str, Answer | Callable[[], Answer]] = field(default_factory=dict)
    uuids: Sequence[str] = (_uuid(0), _uuid(1))
    heat: list[float] = field(default_factory=lambda: [30.0])
    processes: list[str] = field(default_factory=list)
    old_driver: bool = False
    smi: Answer | None = None
    commands: list[tuple[str, ...]] = field(default_factory=list)
    busy: bool = False
    looks: int = 0
    begun: list[float] = field(default_factory=list)
    looked: threading.Event = field(default_factory=threading.Event)

    def run(self, arguments: tuple[str, ...], timeout_seconds: float = 60.0) -> Finished:
        name = next(word for word in arguments if word not in ("sudo", "-n"))
        if name == "nvidia-smi":
            return self._nvidia_smi(arguments[1])
        self.commands.append(arguments)
        answer = self.tools.get(
            f"{name} {arguments[-1]}", self.tools.get(name, Finished(127, "", f"{name}: not found"))
        )
        answer = answer() if callable(answer) else answer
        self.begun.append(self.clock.monotonic())
        self.busy, self.looks = True, 0
        self.looked.clear()
        assert self.looked.wait(20), "nobody looked at the GPUs while the tool ran"
        self.busy = False
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        """Nothing is kept open."""

    def _nvidia_smi(self, query: str) -> Finished:
        if self.smi is not None:
            if isinstance(self.smi, Exception):
                raise self.smi
            return self.smi
        if query == "-L":
            listed = (f"GPU {at}: NVIDIA H100 80GB HBM3 (UUID: {uuid})\n" for at, uuid in enumerate(self.uuids))
            return Finished(0, "".join(listed), "")
        if query.startswith("--query-compute-apps"):
            line = self.processes.pop(0) if self.processes else ""
            return Finished(0, line, "")
        if self.old_driver and "event_reasons" in query:
            return Finished(2, 'Field "clocks_event_reasons.active" is not a valid field to query.\n', "")
        return Finished(0, self._rows(), "")

    def _rows(self) -> str:
        heat = 65.0 if self.busy else self.heat.pop(0) if len(self.heat) > 1 else self.heat[0]
        mask = CAPPED if self.busy else IDLE
        if self.busy:
            self.looks += 1
            if self.looks >= 2:
                self.looked.set()
        return "".join(f"{at}, {mask}, {heat:.0f}, 700.00, 80.0, 1980\n" for at in range(len(self.uuids)))


def _site(**tools: Answer) -> tuple[FakeHost, Kept]:
    host = FakeHost(FakeClock())
    host.tools = {
        "nvbandwidth device_local_copy": Finished(0, nvbandwidth_json([1201.0, 1203.0]), ""),
        f"nvbandwidth {H2D}": Finished(0, nvbandwidth_json([55.0, 55.2], H2D), ""),
        "all_reduce_perf": Finished(0, all_reduce(ranks=2), ""),
        "dcgmproftester12": Finished(0, proftester([["7e+05"] * 5, ["7.1e+05"] * 5]), ""),
    }
    host.tools.update(tools)
    return host, Kept()


def _measure(
    host: FakeHost,
    kept: Kept,
    runs: int = 1,
    phase: Phase = Phase.BEFORE,
    before: Measurements | None = None,
    given: Mapping[str, object] = ALL,
) -> Measurements:
    settings = CanarySettings.model_validate(given)
    bench = Bench("gpu-0001", host, host.clock, kept, gpus=2, inlet=lambda: 24.0)
    return measure_node(bench, phase, runs, settings, None if before is None else before.measured_with)


def _of(measurements: Measurements, measure: str) -> list[Sample]:
    return [sample for sample in measurements.samples if sample.measure == measure]


def test_every_benchmark_gives_its_samples_for_each_run() -> None:
    host, kept = _site()
    found = _measure(host, kept, runs=2)
    values = {(s.measure, s.gpu, s.run): s.value for s in found.samples}
    assert values["hbm_bandwidth", 0, 0] == 1201.0
    assert values["hbm_bandwidth", 1, 1] == 1203.0
    assert values["all_reduce", None, 1] == pytest.approx(481.0)
    assert values["gemm", 1, 0] == pytest.approx(710_000.0)
    assert len(found.samples) == 2 * (2 + 2 + 1 + 2)


def test_conditions_are_those_while_the_test_ran() -> None:
    host, kept = _site()
    (first, _) = _of(_measure(host, kept, given=ONLY_HBM), "hbm_bandwidth")
    assert first.conditions.throttled == ("sw_power_cap",)
    assert first.conditions.gpu_celsius == 65.0
    assert first.conditions.power_limit_watts == 700.0
    assert first.conditions.inlet_celsius == 24.0
    assert first.conditions.others == 0


def test_the_raw_output_is_kept_by_its_digest() -> None:
    host, kept = _site()
    (raw,) = _measure(host, kept, given=ONLY_HBM).raw
    document = json.loads(kept.texts[raw.digest])
    assert document["stdout"] == nvbandwidth_json([1201.0, 1203.0])
    assert document["command"] == ["nvbandwidth", "-j", "-t", "device_local_copy"]
    assert raw.tool == "nvbandwidth 0.8"


def test_a_tool_that_the_node_lacks_is_named() -> None:
    host, kept = _site(all_reduce_perf=Finished(127, "", "sh: 1: all_reduce_perf: not found\n"))
    (sample,) = _of(_measure(host, kept), "all_reduce")
    assert sample.value is None
    assert sample.missing == "all_reduce_perf is not installed"


def test_a_tool_that_exits_with_0_after_a_failure_measures_nothing() -> None:
    text = json.dumps({"nvbandwidth": {"testcases": [{"name": "device_local_copy", "status": "Waived"}]}})
    host, kept = _site(**{"nvbandwidth device_local_copy": Finished(0, text, "")})
    samples = _of(_measure(host, kept, given=ONLY_HBM), "hbm_bandwidth")
    assert [sample.value for sample in samples] == [None, None]
    assert all("waived" in sample.missing for sample in samples)


def test_a_tool_that_exits_with_1_after_it_measured_has_measured() -> None:
    host, kept = _site(**{"nvbandwidth device_local_copy": Finished(1, nvbandwidth_json([1201.0, 1203.0]), "")})
    assert [s.value for s in _of(_measure(host, kept, given=ONLY_HBM), "hbm_bandwidth")] == [1201.0, 1203.0]


def test_the_tool_that_fits_the_driver_is_found_and_used_again() -> None:
    wrong = Finished(1, "", "Wrong version of dcgmproftester is used. Expected Cuda version is 13. Installed is 12.\n")
    host, kept = _site(dcgmproftester13=wrong)
    found = _measure(host, kept, runs=2, given=ONLY_GEMM)
    assert [command[0] for command in host.commands] == ["dcgmproftester13", "dcgmproftester12", "dcgmproftester12"]
    assert found.measured_with.tools["gemm"][0] == "dcgmproftester12"


def test_after_the_change_no_other_tool_is_taken_than_before() -> None:
    host, kept = _site()
    before = _measure(host, kept, given=ONLY_GEMM)
    host.tools["dcgmproftester13"] = host.tools.pop("dcgmproftester12")
    samples = _measure(host, kept, phase=Phase.AFTER, before=before, given=ONLY_GEMM).samples
    assert {sample.value for sample in samples} == {None}
    assert "another would not compare" in samples[0].missing


def test_another_tool_is_taken_where_the_settings_say_so() -> None:
    host, kept = _site()
    given = {**ONLY_GEMM, "tools": {"across_cuda_versions": True}}
    before = _measure(host, kept, given=given)
    host.tools["dcgmproftester13"] = host.tools.pop("dcgmproftester12")
    samples = _measure(host, kept, phase=Phase.AFTER, before=before, given=given).samples
    assert [sample.value is None for sample in samples] == [False, False]


def test_after_the_change_no_other_version_of_a_tool_is_taken_than_before() -> None:
    host, kept = _site()
    before = _measure(host, kept, given=ONLY_HBM)
    host.tools["nvbandwidth device_local_copy"] = Finished(0, nvbandwidth_json([1101.0, 1103.0], version="v0.6"), "")
    samples = _measure(host, kept, phase=Phase.AFTER, before=before, given=ONLY_HBM).samples
    assert {sample.value for sample in samples} == {None}
    assert "nvbandwidth 0.6, and before with nvbandwidth 0.8" in samples[0].missing


def test_a_library_that_the_tool_lacks_is_no_missing_tool() -> None:
    said = "all_reduce_perf: error while loading shared libraries: libnccl.so.2: cannot open shared object file\n"
    host, kept = _site(all_reduce_perf=Finished(127, "", said))
    (sample,) = _of(_measure(host, kept), "all_reduce")
    assert "libnccl.so.2" in sample.missing


def test_a_test_waits_until_the_gpus_are_cool() -> None:
    host, kept = _site()
    host.heat = [60.0, 50.0, 42.0, 36.0, 32.0, 32.0]
    started = host.clock.monotonic()
    _measure(host, kept, given=ONLY_HBM)
    assert host.begun[0] - started == 5 * 10.0


def test_a_gpu_that_does_not_cool_is_measured_after_a_bounded_wait() -> None:
    host, kept = _site()
    host.heat = [90.0 - at for at in range(60)]
    started = host.clock.monotonic()
    samples = _measure(host, kept, given={**ONLY_HBM, "cool_seconds": 60}).samples
    assert {sample.value is None for sample in samples} == {False}
    assert host.begun[0] - started == 60.0


def test_a_gpu_with_a_foreign_process_is_not_measured() -> None:
    host, kept = _site()
    host.processes = [f"{_uuid(1)}, 4321, python\n"] * 40
    samples = _measure(host, kept, given={**ONLY_HBM, "cool_seconds": 60}).samples
    assert host.commands == []
    assert {sample.value for sample in samples} == {None}
    assert "pid 4321 (python)" in samples[0].missing
    assert [sample.conditions.others for sample in samples] == [0, 1]


def test_a_process_that_came_in_during_the_test_is_counted() -> None:
    host, kept = _site()
    host.processes = ["", "", f"{_uuid(1)}, 4321, python\n"]
    samples = _measure(host, kept, given=ONLY_HBM).samples
    assert [sample.conditions.others for sample in samples] == [0, 1]


def test_a_driver_that_does_not_answer_gives_missing_samples_for_every_slot() -> None:
    host, kept = _site()
    host.smi = Finished(9, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", "")
    samples = _measure(host, kept).samples
    assert len(samples) == 7
    assert {sample.value for sample in samples} == {None}
    assert all("communicate" in sample.missing for sample in samples)


def test_a_host_that_is_away_gives_missing_samples() -> None:
    host, kept = _site()
    host.smi = NodeUnreachable("no route to host")
    assert {sample.missing for sample in _measure(host, kept).samples} == {"no route to host"}


def test_a_tool_that_does_not_end_gives_missing_samples() -> None:
    host, kept = _site(**{"nvbandwidth device_local_copy": NodeUnreachable("nvbandwidth did not end within 300 s")})
    samples = _measure(host, kept, given=ONLY_HBM).samples
    assert {sample.missing for sample in samples} == {"nvbandwidth did not end within 300 s"}


def test_a_tool_that_prints_more_than_is_taken_does_not_end_the_measuring() -> None:
    host, kept = _site(all_reduce_perf=ConfigurationError("more than 16 MiB of output"))
    found = _measure(host, kept)
    assert [sample.missing for sample in _of(found, "all_reduce")] == ["more than 16 MiB of output"]
    assert all(sample.value is not None for sample in _of(found, "gemm"))


def test_a_host_whose_key_changed_is_not_talked_to_any_more() -> None:
    host, kept = _site()
    host.smi = HostKeyChanged("another key")
    with pytest.raises(HostKeyChanged):
        _measure(host, kept)


def test_a_gpu_that_was_lost_does_not_move_the_others_to_its_slot() -> None:
    host, kept = _site()
    before = _measure(host, kept, given=ONLY_HBM)
    host.uuids = (_uuid(1),)
    host.tools["nvbandwidth device_local_copy"] = Finished(0, nvbandwidth_json([1203.0]), "")
    samples = _measure(host, kept, phase=Phase.AFTER, before=before, given=ONLY_HBM).samples
    assert {sample.gpu: sample.value for sample in samples} == {1: 1203.0, 0: None}
    assert "does not answer" in next(sample.missing for sample in samples if sample.gpu == 0)


def test_a_tool_that_counts_the_gpus_in_another_order_is_put_right_by_their_addresses() -> None:
    text = nvbandwidth_json([1201.0, 1203.0], addresses=("00000000:9b:00", "00000000:1b:00"))
    host, kept = _site(**{"nvbandwidth device_local_copy": Finished(0, text, "")})
    samples = _measure(host, kept, given=ONLY_HBM).samples
    assert {sample.gpu: sample.value for sample in samples} == {1: 1201.0, 0: 1203.0}


def test_an_older_driver_is_asked_for_throttle_reasons() -> None:
    host, kept = _site()
    host.old_driver = True
    assert _measure(host, kept, given=ONLY_HBM).samples[0].conditions.throttled == ("sw_power_cap",)


def test_tools_are_run_with_the_words_that_make_them_root() -> None:
    host, kept = _site()
    settings = CanarySettings.model_validate(ONLY_HBM)
    measure_node(Bench("n", host, host.clock, kept, prefix=("sudo", "-n")), Phase.BEFORE, 1, settings)
    assert host.commands == [("sudo", "-n", "nvbandwidth", "-j", "-t", "device_local_copy")]
