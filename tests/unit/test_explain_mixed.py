"""Several outputs in one text: each is found, read for itself, and said to be what it is."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.explain import explain
from fleet.findings import Explanation
from fleet.readers.text_parts import MOST_PARTS, text_parts

A = "GPU-aaaaaaaa-1111-2222-3333-444444444444"
B = "GPU-bbbbbbbb-1111-2222-3333-444444444444"
XID = "[   12.300000] NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n"
TABLE = """\
Mon Nov 30 12:00:00 2026
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 580.95.05              Driver Version: 580.95.05      CUDA Version: 13.0     |
+-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
|=========================================+========================+======================|
|   0  NVIDIA H100 80GB HBM3          On  |   00000000:1B:00.0 Off | {ecc:>20} |
| N/A   31C    P0             71W /  700W |       0MiB /  81559MiB |      0%      Default |
|                                         |                        |             Disabled |
+-----------------------------------------+------------------------+----------------------+
"""
TEXT = """\

==============NVSMI LOG==============

Timestamp                                 : Mon Nov 30 12:00:00 2026
Driver Version                            : 580.95.05
CUDA Version                              : 13.0

Attached GPUs                             : 1
GPU 00000000:1B:00.0
{uuid}    ECC Errors
        Volatile
            SRAM Correctable              : 0
            DRAM Uncorrectable            : {errors}
    Remapped Rows
        Correctable Error                 : 0
        Pending                           : {pending}
        Remapping Failure Occurred        : No
"""
IBSTAT = """\
CA 'mlx5_0'
\tCA type: MT4129
\tNumber of ports: 1
\tNode GUID: {guid}
\tPort 1:
\t\tState: {state}
\t\tPhysical state: {physical}
\t\tRate: 400
\t\tLink layer: InfiniBand
"""
DIAG = """\
Successfully ran diagnostic for group.
+---------------------------+------------------------------------------------+
| Diagnostic                | Result                                         |
+===========================+================================================+
|-----  Metadata  ----------+------------------------------------------------|
| DCGM Version              | 4.2.3                                          |
|-----  Stress  ------------+------------------------------------------------|
| memory                    | {result:<46} |
|                           | GPU0: {result:<40} |
+---------------------------+------------------------------------------------+
"""
NODE = (
    "NodeName={name} Arch=x86_64 CoresPerSocket=56\n   Gres=gpu:8\n   State={state} ThreadsPerCore=1\n   {reason}\n\n"
)
SQUEUE = """\
             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)
              4711     train  llm run      ada  R    1:02:03      2 gpu-[0001-0002]
              4712     train     eval      ada PD       0:00      1 (ReqNodeNotAvail, UnavailableNodes:gpu-0003)
              4713     train     last      bob CG       9:00      1 gpu-0004
"""
SINFO = "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\ntrain*       up   infinite      1  down* gpu-0009\n"


def smi(errors: int = 0, pending: str = "No", uuid: str = "") -> str:
    line = f"    GPU UUID                              : {uuid}\n" if uuid else ""
    return TEXT.format(errors=errors, pending=pending, uuid=line)


def _codes(found: Explanation) -> set[tuple[str, str]]:
    return {(finding.subject, finding.code) for finding in found.findings}


def _facts(found: Explanation, subject: str) -> dict[str, str]:
    return dict(next(s.facts for s in found.subjects if s.name == subject))


@pytest.mark.parametrize("sick_first", [True, False])
def test_csvs_of_two_hosts_joined_hide_no_sick_gpu(sick_first: bool) -> None:
    sick = f"index, uuid, remapped_rows.failure\n0, {A}, Yes\n"
    other = f"uuid, index, temperature.gpu\n{B}, 0, 40\n"
    found = explain(sick + other if sick_first else other + sick)
    assert [code for _, code in _codes(found)] == ["ecc.row_remap_failed"]


@pytest.mark.parametrize("sick_first", [True, False])
def test_the_same_query_of_two_hosts_without_any_uuid_hides_no_sick_gpu(sick_first: bool) -> None:
    texts = [f"index, remapped_rows.failure\n0, {word}\n" for word in (("Yes", "No") if sick_first else ("No", "Yes"))]
    found = explain("".join(texts))
    (finding,) = found.findings
    assert (finding.subject, finding.code) == ("gpu 0", "ecc.row_remap_failed")
    assert f"Told by output {1 if sick_first else 2} of 2." in finding.text
    assert any("are of one host" in line for line in found.unknown)


@pytest.mark.parametrize("sick_first", [True, False])
def test_texts_of_two_hosts_without_uuids_hide_no_sick_gpu(sick_first: bool) -> None:
    texts = [smi(pending="Yes"), smi()]
    found = explain("".join(texts if sick_first else texts[::-1]))
    assert ("gpu 0000:1b:00.0", "ecc.row_remap_pending") in _codes(found)


def test_texts_of_two_hosts_with_uuids_are_told_apart_and_of_one_host_the_last_counts() -> None:
    apart = explain(smi(pending="Yes", uuid=A) + smi(uuid=B))
    assert ("output 1 gpu 0000:1b:00.0", "ecc.row_remap_pending") in _codes(apart)
    again = explain(smi(pending="Yes", uuid=A) + smi(uuid=A))
    assert again.findings == ()


def test_tables_of_two_hosts_hide_no_sick_gpu() -> None:
    found = explain(TABLE.format(ecc="3") + TABLE.format(ecc="0"))
    assert ("gpu 0000:1b:00.0", "ecc.uncorrectable_volatile") in _codes(found)


def test_xml_of_two_hosts_hides_no_sick_gpu() -> None:
    document = (
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n<nvidia_smi_log>\n'
        "<driver_version>580.95.05</driver_version><attached_gpus>1</attached_gpus>\n"
        '<gpu id="00000000:1B:00.0"><remapped_rows><remapped_row_failure>{}</remapped_row_failure></remapped_rows>'
        "</gpu>\n</nvidia_smi_log>\n"
    )
    found = explain(document.format("Yes") + document.format("No"))
    assert ("gpu 0000:1b:00.0", "ecc.row_remap_failed") in _codes(found)
    assert not any(code == "gpu.count_mismatch" for _, code in _codes(found))


def test_ibstat_of_two_hosts_hides_no_dead_port() -> None:
    dead = IBSTAT.format(guid="0xb8cef60300000001", state="Down", physical="Polling")
    good = IBSTAT.format(guid="0xb8cef60300000002", state="Active", physical="LinkUp")
    for text in (dead + good, good + dead):
        assert any(code == "ib.down" for _, code in _codes(explain(text)))


def test_diagnostics_of_two_hosts_hide_no_failure() -> None:
    for results in (("Fail", "Pass"), ("Pass", "Fail")):
        found = explain("".join(DIAG.format(result=result) for result in results))
        assert any(finding.subject == "gpu 0" for finding in found.findings)


def test_diagnostics_as_json_of_two_hosts_hide_no_failure() -> None:
    def run(status: str) -> str:
        test = {"name": "memory", "results": [{"entity_group": "GPU", "entity_id": 0, "status": status}]}
        categories = [{"category": "Stress", "tests": [test]}]
        return json.dumps({"DCGM Diagnostic": {"test_categories": categories}}, indent=2) + "\n"

    for text in (run("Fail") + run("Pass"), run("Pass") + run("Fail")):
        assert any(finding.subject == "gpu 0" for finding in explain(text).findings)


def test_a_bug_report_says_which_part_is_what() -> None:
    commands = (("dmesg", XID * 2), ("nvidia-smi", TABLE.format(ecc="0")), ("uptime", " up 3 days\n"))
    report = "".join(f"root@gpu-0007:~# {command}\n{printed}" for command, printed in commands)
    found = explain(report)
    assert found.kind == "kernel_log+nvidia-smi.table"
    assert ("gpu 0000:3b:00", "xid.79") in _codes(found)
    assert _facts(found, "text") == {
        "output 1": "kernel_log, lines 1 to 3 (dmesg)",
        "output 2": "nvidia-smi.table, lines 4 to 14 (nvidia-smi)",
        "output 3": "unknown, lines 15 to 16 (uptime)",
    }
    assert "what these are: lines 15 to 16 (uptime)" in found.unknown


def test_the_kernels_log_is_read_behind_any_other_output() -> None:
    for before in (
        smi(),
        TABLE.format(ecc="0"),
        NODE.format(name="gpu-1", state="IDLE", reason=""),
        '{\n"nodes": []\n}\n',
    ):
        assert ("gpu 0000:3b:00", "xid.79") in _codes(explain(before + XID * 2)), before


def test_a_csv_is_found_behind_a_long_log() -> None:
    log = "".join(f"[ {n}.100000] usb 1-1: new device number {n}\n" for n in range(2000))
    found = explain(log + "index, uuid, remapped_rows.failure\n0, " + A + ", Yes\n")
    assert "ecc.row_remap_failed" in {code for _, code in _codes(found)}


def test_a_log_around_another_output_is_one_log() -> None:
    found = explain(XID + TABLE.format(ecc="0") + XID.replace("79, pid=1, GPU has fallen off the bus", "154, pid=1, x"))
    followed = next(finding for finding in found.findings if finding.code == "xid.154")
    assert "Follows from xid.79" in followed.text


def test_nodes_jobs_and_tables_of_slurm_in_one_text_are_all_read() -> None:
    reason = "Reason=Kill task failed [root@2026-11-30T10:00:00]"
    nodes = NODE.format(name="gpu-0001", state="IDLE", reason="") + NODE.format(
        name="gpu-0002", state="IDLE+DRAIN", reason=reason
    )
    job = (
        "JobId=99 JobName=x\n   UserId=ada(1) GroupId=ada(1)\n   JobState=RUNNING Reason=None\n   NodeList=gpu-0005\n\n"
    )
    for text in (nodes + SQUEUE + SINFO + job, SINFO + job + SQUEUE + nodes, SQUEUE + nodes + job + SINFO):
        found = explain(text)
        assert {"gpu-0001", "gpu-0002", "gpu-0009", "job 4711", "job 4713", "job 99"} <= {
            s.name for s in found.subjects
        }
        assert {("gpu-0002", "slurm.drained"), ("gpu-0009", "slurm.down")} <= _codes(found)
        assert _facts(found, "gpu-0002")["reason"] == "Kill task failed"


def test_squeues_table_is_read_with_blanks_in_names_and_reasons() -> None:
    found = explain(SQUEUE)
    assert found.kind == "slurm-jobs"
    assert _facts(found, "job 4711") | {
        "state": "RUNNING",
        "nodes": "gpu-[0001-0002] (2)",
        "elapsed": "3723 s",
    } == _facts(found, "job 4711")
    assert _facts(found, "job 4712")["nodes"] == "none"
    assert _facts(found, "job 4713") | {"state": "COMPLETING", "holds its nodes": "yes"} == _facts(found, "job 4713")


def test_a_row_of_squeue_that_was_cut_is_named() -> None:
    found = explain(SQUEUE.rstrip().removesuffix("gpu-0004") + "gpu-[00\n")
    assert any("a row of squeue's table: 4713" in line for line in found.unknown)


def test_two_redfish_bodies_are_both_read() -> None:
    bodies = [
        {"@odata.type": "#Task.v1.Task", "Id": str(n), "TaskState": state}
        for n, state in enumerate(("Completed", "Exception"))
    ]
    for text in (
        "".join(json.dumps(body) + "\n" for body in bodies),
        "\n".join(json.dumps(b, indent=1) for b in bodies),
    ):
        assert ("task 1", "task.failed") in _codes(explain(text))


def test_one_output_is_one_answer_without_a_subject_for_its_text() -> None:
    for text in (
        XID,
        TABLE.format(ecc="0"),
        smi(),
        SQUEUE,
        DIAG.format(result="Pass"),
        IBSTAT.format(guid="0x1", state="Active", physical="LinkUp"),
    ):
        found = explain(text)
        assert "text" not in {subject.name for subject in found.subjects}, text


def test_the_parts_are_the_whole_text_and_their_number_is_bounded() -> None:
    text = "x\n" + "==== a ====\ny\n" * (MOST_PARTS + 10)
    parts = text_parts(text)
    assert "".join(part.text for part in parts) == text
    assert (len(parts), parts[-1].rest, parts[-1].last) == (MOST_PARTS + 1, True, text.count("\n"))


_PIECES = st.sampled_from(
    (
        XID,
        TABLE.format(ecc="1"),
        smi(1, "Yes"),
        SQUEUE,
        SINFO,
        DIAG.format(result="Fail"),
        IBSTAT.format(guid="0x2", state="Down", physical="Polling"),
        "index, uuid\n",
        f"0, {A}\n",
        "==== x ====\n",
        "$ dmesg\n",
        "{\n",
        "}\n",
        "```\n",
        "\n",
        "JobId=",
        "NodeName=a ",
        "GPU0 GPU1\n",
        "CA 'x'\n",
    )
)


@settings(max_examples=80)
@given(st.lists(_PIECES | st.text(max_size=20), max_size=12).map("".join))
def test_any_mixture_has_an_answer_and_its_parts_are_all_of_it(text: str) -> None:
    parts = text_parts(text)
    assert "".join(part.text for part in parts) == text
    assert [part.first for part in parts] == sorted(part.first for part in parts)
    found = explain(text)
    assert found.kind
    assert all(len(finding.evidence) <= 300 for finding in found.findings)
