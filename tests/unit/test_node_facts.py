"""A reading becomes facts: what could not be read is unknown with its reason, and never gone."""

from __future__ import annotations

import base64
import gzip
import json
from datetime import UTC, datetime

from fleet.facts import NodeFacts
from fleet.node_facts import facts_of_bmc, facts_of_failure, facts_of_probe
from fleet.node_reading import read_node

NOW = datetime(2026, 11, 30, tzinfo=UTC)


def facts(**sections: object) -> NodeFacts:
    return facts_of_probe("n1", NOW, read_node(json.dumps({"version": 1, "at": NOW.timestamp(), "sections": sections})))


def test_services_packages_and_ways_out_that_were_not_read_are_unknown_and_not_gone() -> None:
    unknown = facts(packages={"unknown": "no answer within 9 s"}).unknown
    names = ("service.*", "package.*", "package_held.*", "packages.listed", "egress.*", "updates.unattended")
    assert {unknown[name] for name in names} == {"no answer within 9 s"}


def test_of_services_that_were_read_none_is_unknown() -> None:
    unknown = facts(packages={"services": {"nvidia-fabricmanager": {"state": "active"}}}).unknown
    assert "service.*" not in unknown


def test_a_gpu_at_which_nvml_hung_says_so_in_each_of_its_facts() -> None:
    hung = {"index": 0, "known": {"serial": "S1"}, "unfinished": "no answer within 9 s, in fields"}
    (part,) = facts(gpus={"source": "nvml", "count": 1, "devices": [hung]}).parts
    assert set(part.unknown.values()) == {"no answer within 9 s, in fields"}


def test_a_gpu_that_does_not_even_tell_its_name_is_no_part_of_its_own() -> None:
    lost = {"index": 1, "known": {}, "unknown": {}, "error": {"code": 15, "words": "GPU is lost"}}
    told = facts(gpus={"source": "nvml", "count": 2, "devices": [{"index": 0, "known": {"serial": "S1"}}, lost]})
    assert ([part.serial for part in told.parts], told.unknown["gpus.1"]) == (["S1"], "GPU is lost")
    assert told.facts["gpu.count"] == "2"


def test_an_nvidia_smi_that_failed_tells_no_gpus_and_why() -> None:
    said = b"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"
    told = facts(gpus={"source": "nvidia-smi", "xml": base64.b64encode(gzip.compress(said)).decode()})
    assert "NVIDIA-SMI has failed" in told.unknown["gpus"]
    assert "NVIDIA-SMI has failed" in told.unknown["gpu.count"]


def test_a_bmc_that_does_not_answer_makes_what_it_told_unknown() -> None:
    told = facts_of_failure("n1", NOW, "unreachable", "BMC: no answer", "bmc")
    assert (told.source, told.facts, told.unknown) == ("bmc", {"bmc.state": "unreachable"}, {"*": "BMC: no answer"})
    assert facts_of_bmc("n1", NOW, (), None).facts == {"bmc.state": "read"}
