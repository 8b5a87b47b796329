"""Any text gives an answer, and none of them is a clean bill."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.findings import Explanation
from fleet.gpu_values import ATTRIBUTES, RawValue, read_gpu
from fleet.readers import nvidia_smi_csv, nvidia_smi_table, nvidia_smi_text, nvidia_smi_xml

READERS = (nvidia_smi_xml, nvidia_smi_text, nvidia_smi_csv, nvidia_smi_table)
PIECES = (
    "<nvidia_smi_log>",
    "</nvidia_smi_log>",
    '<gpu id="00000000:1A:00.0">',
    "</gpu>",
    "<serial>",
    "</serial>",
    "&",
    "&x;",
    "<",
    "<mig_devices>",
    "<mig_device>",
    "</mig_device>",
    "<processes>",
    "<attached_gpus>8</attached_gpus>",
    "<!DOCTYPE",
    "]>",
    "NVSMI LOG",
    "GPU 00000000:1A:00.0",
    "    MIG Mode",
    "        Current : Enabled",
    "Attached GPUs : 8",
    " : ",
    ":",
    "index, uuid, memory.total [MiB]",
    "0, GPU-aaaaaaaa-1111-2222-3333-444444444444, 81559 MiB",
    ", ",
    "[N/A]",
    "ERR!",
    "|   0  Tesla V100  On   | 00000000:00:1E.0 Off |  0 |",
    "| N/A 29C P0 ERR! / 250W | 1MiB / 2MiB | 0% Default |",
    "| MIG devices: |",
    "|  1    2   0   0  | 26MiB / 40448MiB | 60 0 | 3 |",
    "| Processes: |",
    "|  0  1  C x  9MiB |",
    "Unable to determine the device handle for GPU ",
    "Failed to initialize NVML: ",
    "GPU is lost",
    "None",
    "9" * 400,
    "0x" + "f" * 40,
    "\n",
    "\r\n",
    "\t",
    "    ",
    "\x00",
    "\x1b[31m",
    "\ud800",
    "\ufeff",
    "٣",
    "１",
)
texts = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=12)), max_size=40).map("".join)


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
@settings(max_examples=100, deadline=None)
@given(text=texts)
def test_any_text_gives_an_answer(reader: ModuleType, text: str) -> None:
    recognises: Callable[[str], bool] = reader.recognises
    explain: Callable[[str], Explanation] = reader.explain
    assert recognises(text) in (True, False)
    explanation = explain(text)
    assert explanation.kind.startswith("nvidia-smi.")
    assert explanation.unknown
    assert all(len(finding.evidence) <= 300 for finding in explanation.findings)


raw_values: st.SearchStrategy[RawValue] = st.one_of(
    st.text(max_size=30), st.integers(), st.floats(), st.booleans(), st.none(), st.sampled_from(PIECES)
)


@settings(max_examples=100, deadline=None)
@given(values=st.dictionaries(st.sampled_from(sorted(ATTRIBUTES)), raw_values, max_size=30))
def test_any_values_give_a_reading_and_what_is_not_read_is_named_or_no_value(values: dict[str, RawValue]) -> None:
    reading = read_gpu(values)
    named = {text.partition("=")[0] for text in reading.unparsed} | set(reading.unreadable)
    for attribute, value in values.items():
        if getattr(reading, attribute) is None and isinstance(value, int | float):
            assert attribute in named
