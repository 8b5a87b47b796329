"""An inventory from elsewhere becomes nodes, or a list of every fault with its line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.inventory_tools import FLEET, HEADER, NEW, faults_of, outcome, plan_of, spec

from fleet.fleet_file_edit import places
from fleet.inventory_csv import decode_csv, read_csv, write_csv
from fleet.inventory_import import Known, plan_import
from fleet.inventory_rows import Row, Rows, serial_of


def test_a_new_row_is_a_node_in_the_fleet_files_form() -> None:
    plan = plan_of(HEADER + NEW)
    (entry,) = plan.added
    assert (entry.name, entry.bmc, entry.ssh, entry.unit) == ("gpu-0003", "https://10.0.0.3", "10.1.0.3", 1)
    assert plan.origins["gpu-0003"] == "new.csv:2"
    assert plan.absent == ("gpu-0001", "gpu-0002")


def test_an_excel_file_with_mark_semicolons_quotes_and_crlf_is_read_with_its_columns_in_any_order() -> None:
    text = (
        '\ufeffBMC IP;"Host Name";Rack;Rack Unit;SSH Address;Pool;Device Type\r\n'
        "\r\n"
        '10.0.0.3;"gpu-0003";r02;U12;10.1.0.3;train;HGX-H100-8\r\n'
        ";;;;;;\r\n"
    )
    (entry,) = plan_of(decode_csv(text.encode())).added
    assert (entry.bmc, entry.unit) == ("https://10.0.0.3", 12)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_a_file_of_another_encoding_is_read(encoding: str) -> None:
    text = "name,rack,pool,model,bmc,ssh,note\n" + NEW.replace(",1\n", ",für Köln\n")
    rows = read_csv(decode_csv(text.encode(encoding)), "new.csv").rows
    assert rows[0].values["note"] == "für Köln"


def test_tabs_and_a_sep_line_are_understood() -> None:
    assert plan_of((HEADER + NEW).replace(",", "\t")).added
    assert plan_of("sep=;\r\n" + (HEADER + NEW).replace(",", ";")).origins == {"gpu-0003": "new.csv:3"}


def test_the_line_of_a_record_is_that_of_its_beginning_behind_cells_of_several_lines() -> None:
    text = 'name,note\ngpu-0001,"two\nlines"\ngpu-0009,x\n'
    assert [row.origin for row in read_csv(text, "new.csv").rows] == ["new.csv:2", "new.csv:4"]


def test_one_row_for_sixteen_nodes_is_taken_apart_by_hostlist_and_template() -> None:
    text = "name,rack,pool,model,bmc,ssh,unit,serial\n" + (
        '"gpu[003-018]",r02,train,HGX-H100-8,"https://{name}-bmc.lab:8443","10.1.0.{n+100}","[1-16]","SN{number}"\n'
    )
    plan = plan_of(text)
    assert len(plan.added) == 16
    last = plan.added[-1]
    assert (last.name, last.bmc, last.ssh, last.unit) == (
        "gpu018",
        "https://gpu018-bmc.lab:8443",
        "10.1.0.118",
        16,
    )
    assert last.serial == "SN018"


def test_addresses_as_hostlists_walk_in_step_with_the_names() -> None:
    text = HEADER + '"gpu-[0003-0004]",r02,train,HGX-H100-8,"10.0.0.[3-4]","10.1.0.[3,7]",\n'
    assert [(entry.bmc, entry.ssh) for entry in plan_of(text).added] == [
        ("https://10.0.0.3", "10.1.0.3"),
        ("https://10.0.0.4", "10.1.0.7"),
    ]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ('"gpu[003-018]",r02,train,HGX-H100-8,"10.0.0.[3-9]",10.1.0.{n},', "bmc: '10.0.0.[3-9]' gives 7 values for 16"),
        (
            '"gpu[003-018]",r02,train,HGX-H100-8,{nmae}.lab,10.1.0.{n},',
            "{nmae} means nothing here; did you mean 'name'",
        ),
        ('"gpu[003-",r02,train,HGX-H100-8,{name},10.1.0.{n},', "name: hostlist: "),
        ("gpu-x,r02,train,HGX-H100-8,10.0.0.{n},10.1.0.9,", "{n} needs a number in the name"),
        ('"gpu[1-2]",r02,train,HGX-H100-8,"10.0.0.[1-",10.1.0.{n},', "10.0.0.[1-"),
    ],
)
def test_a_wrong_hostlist_or_template_is_a_fault_with_its_line(row: str, said: str) -> None:
    (fault, *_) = faults_of(HEADER + row + "\n")
    assert fault.startswith("new.csv:2: ")
    assert said in fault


def test_an_ipv6_address_in_brackets_is_no_hostlist() -> None:
    text = HEADER + '"gpu[3-4]",r02,train,HGX-H100-8,"https://[fd00::{n}]",h{n},\n'
    assert [entry.bmc for entry in plan_of(text).added] == ["https://[fd00::3]", "https://[fd00::4]"]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("gpu-0003,r03,train,HGX-H100-8,10.0.0.3,10.1.0.3,1", "rack: no rack 'r03' in this fleet; did you mean 'r0"),
        ("gpu-0003,r02,trian,HGX-H100-8,10.0.0.3,10.1.0.3,1", "pool: no pool 'trian' in this fleet; did you mean 'tr"),
        ("gpu-0003,r02,train,HGX-H100,10.0.0.3,10.1.0.3,1", "model: no model 'HGX-H100' in this fleet; did you mean"),
        ("gpu-0003,r02,train,HGX-H100-8,10.0.0.3,10.1.0.3,61", "unit: there is no unit 61; 1 to 60"),
        ("gpu-0003,r02,train,HGX-H100-8,10.0.0.3,10.1.0.3,0", "unit: there is no unit 0"),
        ("gpu-0003,r02,train,HGX-H100-8,10.0.0.3,10.1.0.3,12.5", "half units"),
        ("gpu-0003,r02,train,HGX-H100-8,10.0.0.3,10.1.0.3,top", "unit: 'top' is no rack unit"),
        ("gpu-0003,r02,train,HGX-H100-8,10.0.0.333,10.1.0.3,1", "bmc: '10.0.0.333' is no IPv4 address"),
        ("gpu-0003,r02,train,HGX-H100-8,10.0.O.3,10.1.0.3,1", "bmc: '10.0.o.3' is no IPv4 address"),
        ("gpu-0003,r02,train,HGX-H100-8,0.0.0.0,10.1.0.3,1", "bmc: 0.0.0.0 is not the address of one machine"),
        ("gpu-0003,r02,train,HGX-H100-8,10.0.0.3:99999,10.1.0.3,1", "bmc: '10.0.0.3:99999'"),
        ("gpu-0003,r02,train,HGX-H100-8,10.0.0.3,10.1.0.3:0,1", "ssh: the port of '10.1.0.3:0' does not exist"),
        ("gpu-0003,r02,train,HGX-H100-8,10.0.0.3,10.1.0.3:ssh,1", "ssh: the port of '10.1.0.3:ssh'"),
        ("gpu-0003,r02,train,HGX-H100-8,ftp://10.0.0.3,10.1.0.3,1", "bmc: 'ftp://10.0.0.3' is no BMC's address"),
        ("gpu-0003,r02,train,HGX-H100-8,10.0.0.3,,1", "ssh: is missing"),
        ("gpu_0003!,r02,train,HGX-H100-8,10.0.0.3,10.1.0.3,1", "name: "),
        (",r02,train,HGX-H100-8,10.0.0.3,10.1.0.3,1", "name: is missing"),
        ("GPU-0001,r02,train,HGX-H100-8,10.0.0.3,10.1.0.3,1", "name: gpu-0001 belongs to gpu-0001 (fleet.yaml:9)"),
        ("gpu-0003,r02,train,HGX-H100-8,10.0.0.1:443,10.1.0.3,1", "bmc: https://10.0.0.1:443 belongs to gpu-0001 (fl"),
        ("gpu-0003,r02,train,HGX-H100-8,10.0.0.3,10.1.0.2,1", "ssh: 10.1.0.2 belongs to gpu-0002 (fleet.yaml:10)"),
        ("gpu-0003,r01,train,HGX-H100-8,10.0.0.3,10.1.0.3,1", "unit: r01 U1 holds gpu-0001 (fleet.yaml:9)"),
        ("gpu-0003,r02,train,HGX-H100-8,10.0.0.3,10.1.0.3,1,more,cells", "9 cells, and the header has 7"),
    ],
)
def test_a_wrong_row_says_what_and_where_and_nothing_is_imported(row: str, said: str) -> None:
    faults = faults_of(HEADER + "\n" + row + "\n")
    assert [fault for fault in faults if fault.startswith("new.csv:3: ") and said in fault], faults


def test_every_fault_of_a_broken_inventory_is_in_one_report_in_the_order_of_its_lines() -> None:
    text = "name,rack,pool,model,bmc,ssh,unit,serial,colour\n" + "".join(
        f"{row},x\n"
        for row in (
            "gpu-0003,r02,train,HGX-H100-8,10.0.0.3,10.1.0.3,99,SN-3",
            "gpu-0004,r02,train,HGX-H100-8,10.0.0.4,10.1.0.4,4,SN-4",
            "gpu-0005,r02,train,HGX-H100-8,10.0.0.5,10.1.0.5,4,sn-4",
            "gpu-0006,r07x,train,HGX-H100-8,10.0.0.4,10.1.0.4,6,",
            "gpu-0004,r02,train,HGX-H100-8,10.0.0.7,10.1.0.7,7,",
        )
    )
    faults = faults_of(text)
    assert [fault.split(": ", 2)[0] for fault in faults] == [
        "new.csv:1",
        "new.csv:2",
        *["new.csv:4"] * 2,
        *["new.csv:5"] * 3,
        "new.csv:6",
    ]
    shown = "\n".join(faults)
    for said in (
        "unknown column 'colour'",
        "there is no unit 99",
        "serial: sn-4 belongs to gpu-0004 (new.csv:3)",
        "r02 U4 holds gpu-0004 (new.csv:3)",
        "no rack 'r07x'",
        "bmc: https://10.0.0.4 belongs to gpu-0004",
        "name: gpu-0004 belongs to gpu-0004 (new.csv:3)",
    ):
        assert said in shown


def test_an_unknown_column_names_the_nearest_right_one() -> None:
    assert "unknown column 'rcak'; did you mean 'rack'?" in faults_of(HEADER.replace("rack", "rcak") + NEW)[0]


def test_a_column_of_passwords_is_refused_and_no_password_is_shown() -> None:
    faults = faults_of("name,bmc_password,bmc\ngpu-0001,hunter2,https://root:hunter2@10.0.0.1\n")
    assert "hunter2" not in "\n".join(faults)
    assert "a secret does not belong in an inventory" in faults[0]
    assert "must not hold a user or a password" in faults[1]


def test_a_quote_that_is_never_closed_is_one_fault_and_nothing_is_imported() -> None:
    assert "new.csv:3: a quoted cell" in faults_of(HEADER + NEW + '"gpu-0004,r02\n' + NEW)[0]


def test_a_high_chassis_takes_its_units_above_too() -> None:
    text = HEADER.strip() + ",height\n" + NEW.strip() + ",8\n"
    text += "gpu-0004,r02,train,HGX-H100-8,10.0.0.4,10.1.0.4,8,8\n"
    assert "gpu-0004: unit: r02 U8 holds gpu-0003" in faults_of(text)[0]
    assert len(plan_of(text.replace(",8,8\n", ",9,8\n")).added) == 2


def test_a_serial_is_written_and_a_placeholder_takes_none_away() -> None:
    text = FLEET.replace("unit: 1}", "unit: 1, serial: SN-1}")
    known = Known(places=places(text, "fleet.yaml"))
    rows = read_csv("name,serial\ngpu-0001,N/A\ngpu-0002,SN-2\n", "new.csv")
    plan, faults = plan_import(rows, spec(text), known)
    assert (plan is not None, faults) == (True, ())
    assert plan is not None
    assert {name: [(c.field, c.old, c.new) for c in found] for name, found in plan.changed.items()} == {
        "gpu-0002": [("serial", None, "SN-2")]
    }
    assert plan.unchanged == ("gpu-0001",)


def test_a_serial_of_the_fleet_file_on_another_node_is_a_fault() -> None:
    text = FLEET.replace("unit: 1}", "unit: 1, serial: SN-1}")
    rows = read_csv("name,serial\ngpu-0002,sn-1\n", "new.csv")
    plan, faults = plan_import(rows, spec(text), Known(places=places(text, "fleet.yaml")))
    assert (plan, [str(fault) for fault in faults]) == (
        None,
        ["new.csv:2: gpu-0002: serial: sn-1 belongs to gpu-0001 (fleet.yaml:9)"],
    )


def test_a_serial_that_was_read_on_another_node_is_a_fault() -> None:
    known = Known(serials={"ABC-1": "gpu-0001"})
    text = "name,rack,pool,model,bmc,ssh,serial\n" + NEW.replace(",1\n", ",abc-1\n")
    assert "serial: abc-1 was read on gpu-0001" in faults_of(text, known)[0]


def test_a_serial_that_moves_with_its_bmcs_address_is_no_fault() -> None:
    known = Known(serials={"ABC-1": "gpu-0001"})
    head, row = "name,rack,pool,model,bmc,ssh,serial\n", NEW.replace(",1\n", ",abc-1\n")
    moved = "gpu-0001,,,,10.0.0.77,,\n"
    assert [entry.serial for entry in plan_of(head + row + moved, known).added] == ["abc-1"]


@pytest.mark.parametrize("text", ["", "N/A", "To Be Filled By O.E.M.", "0000000", "-", "Default string", "..."])
def test_what_firmware_says_where_there_is_no_serial_is_none(text: str) -> None:
    assert serial_of(text) is None
    assert serial_of(" 1654923000123 ") == "1654923000123"


def test_a_model_that_no_node_has_needs_a_word() -> None:
    text = HEADER + NEW.replace("HGX-H100-8", "HGX-B300-8")
    assert "no model 'HGX-B300-8'" in faults_of(text)[0]
    assert plan_of(text, Known(new_models=frozenset({"HGX-B300-8"}))).added


def test_a_partial_row_changes_only_what_it_gives() -> None:
    plan = plan_of("name,unit,rack\ngpu-0002,4,\ngpu-0001,1,r01\n")
    ((change,),) = plan.changed.values()
    assert (change.field, change.old, change.new) == ("unit", None, 4)
    assert (plan.unchanged, plan.added, plan.absent) == (("gpu-0001",), (), ())


def test_another_spelling_of_an_address_is_no_change_but_the_way_to_plain_http_is() -> None:
    assert plan_of("name,bmc,ssh\ngpu-0001,https://10.0.0.1:443/redfish/v1/,10.1.0.1:22\n").empty
    assert plan_of("name,bmc\ngpu-0001,http://10.0.0.1:443\n").changed


def test_two_nodes_that_swap_their_addresses_do_not_collide() -> None:
    text = "name,bmc,ssh\ngpu-0001,10.0.0.2,10.1.0.2\ngpu-0002,10.0.0.1,10.1.0.1\n"
    assert set(plan_of(text).changed) == {"gpu-0001", "gpu-0002"}


@pytest.mark.parametrize("text", ["", "\n\n", "\ufeff", HEADER, "# nothing\n"])
def test_an_empty_inventory_is_a_fault(text: str) -> None:
    assert len(faults_of(text)) == 1


def test_what_is_exported_is_unchanged_when_it_is_imported() -> None:
    plan = plan_of(write_csv(spec().nodes))
    assert plan.empty
    assert plan.unchanged == ("gpu-0001", "gpu-0002")


def test_the_example_of_the_documentation_is_read() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "inventory.md").read_text()
    rows = read_csv(page.split("```csv\n")[1].split("```")[0], "new.csv")
    assert rows.faults == ()
    assert [row.values["unit"] for row in rows.rows] == ["1", "9", "17", "25"]
    assert rows.rows[3].values["ssh"] == "10.1.7.14"


@given(st.text(max_size=300))
@settings(max_examples=150, deadline=None)
def test_any_text_gives_a_plan_or_faults(text: str) -> None:
    plan, faults = outcome(read_csv(text, "new.csv"))
    assert (plan is None) == bool(faults)


@given(st.binary(max_size=200))
@settings(max_examples=100, deadline=None)
def test_any_bytes_are_some_text(content: bytes) -> None:
    assert isinstance(decode_csv(content), str)


_CELL = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=12) | st.sampled_from(
    [
        "gpu-0001",
        "r01",
        "10.0.0.1",
        "[1-3]",
        "gpu[1-3]",
        "{n}",
        "{name}",
        "U7",
        "https://",
        "[::1]",
        "a:b:c",
        "²",
        "1e9",
    ]
)


@given(st.lists(st.dictionaries(st.sampled_from(("name", "rack", "bmc", "ssh", "unit", "height", "serial")), _CELL)))
@settings(max_examples=200, deadline=None)
def test_any_cells_give_a_plan_or_faults(cells: list[dict[str, str]]) -> None:
    rows = Rows(tuple(Row(f"x:{n}", {k: v for k, v in row.items() if v.strip()}) for n, row in enumerate(cells)))
    plan, faults = outcome(rows)
    assert (plan is None) == bool(faults)
