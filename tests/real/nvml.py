"""Builds the fake libnvidia-ml, and describes nodes to it. The format of a state is told in fake_nvml.c."""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

_SOURCE = Path(__file__).with_name("fake_nvml.c")
State = dict[str, str]


def missing_compiler() -> str | None:
    """Why no library can be built here; None where it can."""
    return None if shutil.which("cc") else "no C compiler (Debian: gcc)"


def fake_library(folder: Path, state: State, *, old: bool = False) -> Path:
    """A library in `folder` that answers from `state`; an `old` one lacks the functions of new drivers."""
    library = folder / "libnvidia-ml.so.1"
    shutil.copy(_built(old), library)
    write_state(library, state)
    return library


def write_state(library: Path, state: State) -> None:
    text = "".join(f"{key} {value}\n" for key, value in state.items())
    library.with_name(f"{library.name}.state").write_text(text)


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="fake-nvml-")  # removed with the process


@functools.cache
def _built(old: bool) -> Path:
    output = Path(_folder().name) / f"libnvidia-ml-{'old' if old else 'new'}.so"
    flags = ["-DOLD"] if old else []
    command = ["cc", "-O1", "-w", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1", *flags]
    subprocess.run([*command, "-o", str(output), str(_SOURCE), "-ldl"], check=True)
    return output


def healthy_h100(count: int = 8) -> State:
    """An HGX H100 node with driver 580 at rest."""
    state = {**_NODE, "count": str(count), **{f"gpu.{call}": value for call, value in _H100.items()}}
    for gpu in range(count):
        state |= {
            f"gpu{gpu}.UUID": f"GPU-00000000-0000-4000-8000-00000000000{gpu}",
            f"gpu{gpu}.Serial": f"165012345678{gpu}",
            f"gpu{gpu}.PciInfo": f"0 {0x1B + 0x10 * gpu} 0 0x233010DE 0x16C110DE",
            f"gpu{gpu}.MinorNumber": str(gpu),
            f"gpu{gpu}.ModuleId": str(gpu + 1),
        }
    return state


def gb200() -> State:
    """One board of a GB200 tray: PCI domains other than 0, margins instead of temperature thresholds."""
    state = healthy_h100(2)
    for key in [key for key in state if key.startswith("gpu.TemperatureThreshold")]:
        del state[key]
    state |= {f"gpu.{call}": value for call, value in _GB200.items()}
    for gpu, domain in enumerate((0x8, 0x19)):
        state[f"gpu{gpu}.PciInfo"] = f"{domain} 1 0 0x294110DE 0x204610DE"
    return state


def set_gpu(state: State, gpu: int, **calls: str) -> State:
    """A copy in which this GPU answers so; `__` stands for a dot."""
    return {**state, **{f"gpu{gpu}.{call.replace('__', '.')}": value for call, value in calls.items()}}


_NODE = {"driver": "580.105.08", "nvml": "13.580.105.08", "cuda": "13000"}
_H100 = {
    "Name": "NVIDIA H100 80GB HBM3",
    "Brand": "14",
    "Architecture": "9",
    "CudaComputeCapability": "9 0",
    "BoardId": "0x1b00",
    "BoardPartNumber": "692-2G520-0200-000",
    "Pdi": "0x1",
    "VbiosVersion": "96.00.99.00.01",
    "InforomImageVersion": "G520.0200.00.05",
    "InforomVersion.0": "2.1",
    "InforomVersion.1": "7.16",
    "GspFirmwareVersion": "580.105.08",
    "PersistenceMode": "1",
    "DisplayActive": "0",
    "AccountingMode": "0",
    "AddressingMode": "1",
    "VirtualizationMode": "0",
    "C2cMode": "0",
    "ComputeMode": "0",
    "PerformanceState": "0",
    "MigMode": "0 0",
    "EccMode": "1 1",
    **{f"TotalEccErrors.{error}.{counter}": "0" for error in (0, 1) for counter in (0, 1)},
    **{f"MemoryErrorCounter.{e}.{c}.{p}": "0" for e in (0, 1) for c in (0, 1) for p in (2, 7)},
    "SramEccErrorStatus": "0 0 0 0 0 0 0 0 0 0 0 0",
    "RepairStatus": "0 0",
    "RemappedRows": "0 0 0 0",
    "RowRemapperHistogram": "2560 0 0 0 0",
    "ClockInfo.0": "1980",
    "ClockInfo.1": "1980",
    "ClockInfo.2": "2619",
    "ClockInfo.3": "1545",
    "MaxClockInfo.0": "1980",
    "MaxClockInfo.1": "1980",
    "MaxClockInfo.2": "2619",
    "CurrentClocksEventReasons": "1",
    "CurrentClocksThrottleReasons": "1",
    "PowerUsage": "71250",
    "EnforcedPowerLimit": "700000",
    "PowerManagementLimit": "700000",
    "PowerManagementDefaultLimit": "700000",
    "PowerManagementLimitConstraints": "200000 700000",
    "Temperature.0": "31",
    "MarginTemperature": "54",
    "TemperatureThreshold.0": "92",
    "TemperatureThreshold.1": "89",
    "TemperatureThreshold.2": "95",
    "TemperatureThreshold.3": "87",
    "CurrPcieLinkGeneration": "5",
    "MaxPcieLinkGeneration": "5",
    "GpuMaxPcieLinkGeneration": "5",
    "CurrPcieLinkWidth": "16",
    "MaxPcieLinkWidth": "16",
    "PcieReplayCounter": "0",
    "MemoryInfo": f"{81559 << 20} {0 << 20} {480 << 20}",
    "BAR1MemoryInfo": f"{131072 << 20} {1 << 20}",
    "UtilizationRates": "0 0",
    "EncoderUtilization": "0 0",
    "DecoderUtilization": "0 0",
    "JpgUtilization": "0 0",
    "OfaUtilization": "0 0",
    "GpuFabricInfo": f"3 0 0 {0b10} 1 0",
    "Field.82.0": "38",
    "Field.91.0": "18",
    "Field.95.0": "0",
    "Field.185.0": "71250",
    "Field.186.0": "70900",
    "Field.193.0": "-8",
    "Field.194.0": "-2",
    "Field.196.0": "0",
    "Field.230.0": "0",
    "Field.74.0": "7015000",
    **{f"NvLinkState.{link}": "1" for link in range(18)},
    **{f"NvLinkVersion.{link}": "6" for link in range(18)},
    **{f"NvLinkRemote.{link}": "7" for link in range(18)},
    **{f"Field.{field}.{link}": "0" for field in (161, 162, 163) for link in range(18)},
    **{f"Field.164.{link}": "26562" for link in range(18)},
}
_GB200 = {
    "Name": "NVIDIA GB200",
    "Architecture": "10",
    "CudaComputeCapability": "10 0",
    "AddressingMode": "2",
    "C2cMode": "1",
    "MemoryInfo": f"{189471 << 20} {0 << 20} {624 << 20}",
    "GpuFabricInfo": f"3 0 2 {0b101010 | 0b10} 1 162",
    "PlatformInfo": "10 5 1 1 2",
    "PlatformInfo.serial": "1820000000001",
}
