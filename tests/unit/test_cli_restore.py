"""`gpufleet clear` and `breaker reset`: what a person lets go on, and what stays shut."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from unit.cli_site import CliSite, cli_site
from unit.site_fakes import GPU, OLD

from fleet.budget import PoolLimits
from fleet.errors import SchedulerUnreachable
from fleet.model import NodeState
from ledger import NodeStatus

CLEAR = ("clear", "gpu-0001", "--reason", "GPU 3 reseated")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CliSite:
    return cli_site(tmp_path, monkeypatch)


def _cordon(site: CliSite, reason: str) -> None:
    site.fake_scheduler.cordon(("gpu-0001",), reason)


def test_a_node_that_passes_goes_back_and_our_cordon_is_lifted(site: CliSite) -> None:
    operation = site.operation()
    _cordon(site, f"gpufleet[{operation}] quarantined: reset ignored")
    site.quarantine()
    done = site.run(*CLEAR, answer="y\n")
    assert done.exit_code == 0
    assert f"compares its firmware with what {operation} wanted" in done.stdout
    assert f"the reason is ours: gpufleet[{operation}] quarantined" in done.stdout
    assert (site.state(), site.fake_scheduler.uncordons) == (NodeState.IN_SERVICE, 1)
    moves = [json.loads(r.payload) for r in site.ledger().audit.tail(9, "gpu-0001") if r.action == "node.move"]
    assert [move["to"] for move in moves] == ["quarantined", "validating", "in_service"]
    assert moves[-1]["reason"].endswith(": GPU 3 reseated")


def test_nothing_is_touched_where_the_person_says_no(site: CliSite) -> None:
    _cordon(site, "gpufleet[fw-1]")
    site.quarantine()
    assert site.run(*CLEAR, answer="n\n").exit_code == 8
    assert (site.state(), site.fake_scheduler.cordoned, site.asked) == (NodeState.QUARANTINED, True, [])


def test_a_cordon_that_is_not_ours_stays(site: CliSite) -> None:
    _cordon(site, "bad fan, ask ana")
    site.quarantine()
    assert site.run(*CLEAR, "--yes").exit_code == 0
    assert (site.state(), site.fake_scheduler.reason) == (NodeState.IN_SERVICE, "bad fan, ask ana")


def test_other_firmware_keeps_it_out_until_a_person_accepts_that(site: CliSite) -> None:
    operation = site.operation()
    _cordon(site, f"gpufleet[{operation}]")
    site.quarantine()
    site.fake_bmc.versions[GPU] = OLD
    refused = site.run(*CLEAR, "--yes")
    assert (refused.exit_code, site.state(), site.fake_scheduler.cordoned) == (1, NodeState.QUARANTINED, True)
    assert f"{GPU} runs {OLD}" in refused.stderr
    assert site.ledger().inventory.node("gpu-0001").reason.startswith("reset ignored (not cleared: ")
    accepted = site.run(*CLEAR, "--yes", "--accept-firmware", "--json")
    assert json.loads(accepted.stdout)["cleared"] is True
    assert OLD in json.loads(accepted.stdout)["accepted"][0]
    assert OLD in site.ledger().inventory.node("gpu-0001").reason


def test_an_operation_that_never_changed_the_node_wanted_nothing_of_it(site: CliSite) -> None:
    site.operation(NodeStatus.PENDING)
    site.operation(NodeStatus.SKIPPED)
    site.quarantine()
    site.fake_bmc.versions[GPU] = OLD
    done = site.run(*CLEAR, "--yes")
    assert (done.exit_code, "firmware is not compared" in done.stdout) == (0, True)


def test_a_bmc_that_is_busy_is_asked_again_and_one_that_stays_away_is_a_finding(site: CliSite) -> None:
    site.quarantine()
    site.fake_bmc.busy = 2
    assert site.run(*CLEAR, "--yes").exit_code == 0
    site.quarantine()
    site.fake_bmc.away_until = site.site_clock.monotonic() + 3600
    refused = site.run(*CLEAR, "--yes", "--json")
    answer = json.loads(refused.stdout)
    assert (refused.exit_code, answer["cleared"], answer["state"]) == (1, False, "quarantined")
    assert "BMC could not be read" in answer["findings"][0]


def test_a_host_that_lists_too_few_gpus_keeps_it_out(site: CliSite) -> None:
    site.quarantine()
    site.fake_host.listed = site.fake_host.listed.partition("\n")[0]
    refused = site.run(*CLEAR, "--yes")
    assert (refused.exit_code, "the host shows 1 GPUs, not 8" in refused.stderr) == (1, True)


def test_a_scheduler_that_stops_answering_leaves_the_node_in_quarantine(site: CliSite) -> None:
    _cordon(site, "gpufleet[fw-1]")
    site.quarantine()

    def gone(nodes: tuple[str, ...]) -> None:
        raise SchedulerUnreachable("connection refused")

    site.fake_scheduler.uncordon = gone  # type: ignore[method-assign]
    assert site.run(*CLEAR, "--yes").exit_code == 4
    assert site.state() is NodeState.QUARANTINED


def test_a_clear_that_was_broken_off_can_be_repeated(site: CliSite) -> None:
    site.quarantine()
    site.ledger().inventory.move("gpu-0001", NodeState.VALIDATING, "reset ignored")
    assert site.run(*CLEAR, "--yes").exit_code == 0
    assert site.state() is NodeState.IN_SERVICE


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("clear", "gpu-0001", "--reason", "x", "--yes"), 6, "not quarantined"),
        (("clear", "gpu-9999", "--reason", "x", "--yes"), 6, "not in the fleet file"),
        (("clear", "gpu-0001", "--reason", " ", "--yes"), 2, "say why"),
        (("clear", "gpu-0001", "--yes"), 2, "--reason"),
        (("breaker", "reset", "train", "--reason", ""), 2, "say why"),
        (("breaker", "reset", "nowhere", "--reason", "x"), 6, "no pool 'nowhere'"),
    ],
)
def test_what_cannot_be_done_says_so(site: CliSite, arguments: tuple[str, ...], code: int, said: str) -> None:
    refused = site.run(*arguments)
    assert refused.exit_code == code
    assert said in refused.stderr


def test_a_node_that_an_operation_holds_is_not_cleared(site: CliSite) -> None:
    operation = site.operation()
    site.hold(operation)
    site.ledger().inventory.move("gpu-0001", NodeState.QUARANTINED, "reset ignored", operation)
    refused = site.run(*CLEAR, "--yes")
    assert (refused.exit_code, f"held by {operation}" in refused.stderr) == (6, True)
    assert site.state() is NodeState.QUARANTINED


def test_a_tripped_breaker_is_reset_with_its_reason_in_the_audit(site: CliSite) -> None:
    limits = PoolLimits(capacity_floor=0.0, breaker_share=0.1, breaker_floor_nodes=0)
    spec = site.spec
    site.ledger().inventory.sync(spec.inventory(), {"r01": 2, "r02": 2}, {"train": limits, "dev": limits})
    site.quarantine()
    was = site.ledger().leases.tripped()["train"]
    done = site.run("breaker", "reset", "train", "--reason", "power is back", "--json")
    assert (done.exit_code, json.loads(done.stdout)) == (0, {"pool": "train", "was": was, "reset": True})
    assert site.ledger().leases.tripped() == {}
    record = site.ledger().audit.tail(1, "train")[0]
    assert (record.action, json.loads(record.payload)["reason"]) == ("breaker.reset", "power is back")
    assert "it was not tripped" in site.run("breaker", "reset", "train", "--reason", "again").stdout
