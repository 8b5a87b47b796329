"""Which repository a refresh complains of, and that only those of the driver stand in its way."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from unit.driver_host_fake import NEW, OLD, DriverSite, change, check_whole
from unit.site_fakes import Answer
from unit.test_driver_preflight import codes, judge, packages

from adapters.packages_dnf import DnfPackages
from fleet.driver_packages import JobFault, OfferedPackage, job_fault
from fleet.errors import NotQualified
from fleet.package_repositories import RepositoryFault, complaints, refresh_faults, sources_of

CUDA = "https://developer.example/compute/cuda/repos/ubuntu2404/x86_64  Packages"
UBUNTU = "http://archive.example/ubuntu noble-updates/restricted amd64 Packages"
LOCAL = "file:/srv/repo ./ Packages"


def only(text: str) -> RepositoryFault:
    (fault,) = refresh_faults(text)
    return fault


@pytest.mark.parametrize(
    ("line", "source"),
    [
        (
            "Err:3 http://archive.example/ubuntu noble-updates InRelease\n  Could not connect to archive.example:80",
            UBUNTU,
        ),
        ("Err:9 http://archive.example/ubuntu noble-updates/restricted amd64 Packages\n  403  Forbidden", UBUNTU),
        ("W: Failed to fetch http://archive.example/ubuntu/dists/noble-updates/InRelease  Could not resolve", UBUNTU),
        ("W: GPG error: http://ARCHIVE.example/ubuntu noble-updates InRelease: NO_PUBKEY 0123456789ABCDEF", UBUNTU),
        ("E: The repository 'http://archive.example/ubuntu noble-updates Release' is not signed.", UBUNTU),
        ("W: GPG error: http://archive.example noble-updates Release: BADSIG 0123456789ABCDEF", UBUNTU),
        ("E: Failed to fetch http://bob:pw@archive.example/ubuntu/pool/r/x.deb  Hash Sum mismatch", UBUNTU),
        (
            "E: Failed to fetch store:/var/lib/apt/lists/partial/archive.example_ubuntu_dists_noble-updates_main_"
            "binary-amd64_Packages.xz  Hash Sum mismatch",
            UBUNTU,
        ),
        ("E: The repository 'file:/srv/repo ./ Release' is not signed.", LOCAL),
        ("E: Failed to fetch file:///srv/repo/./InRelease  File not found - /srv/repo/./InRelease", LOCAL),
        ("E: Failed to fetch store:/var/lib/apt/lists/partial/_srv_repo_._Packages  Hash Sum mismatch", LOCAL),
        ("W: Failed to fetch https://developer.example/compute/cuda/repos/ubuntu2404/x86_64/InRelease  503", CUDA),
    ],
)
def test_a_complaint_is_about_the_repository_that_it_names(line: str, source: str) -> None:
    fault = only(line)
    assert fault.concerns((source,))
    assert [other for other in (CUDA, UBUNTU, LOCAL) if fault.concerns((other,))] == [source]


@pytest.mark.parametrize(
    "line",
    [
        "Err:1 http://archive.example/ubuntu noble-backports InRelease\n  Connection timed out",
        "E: Failed to fetch http://archive.example/ubuntu-ports/dists/noble-updates/InRelease  404  Not Found",
        "W: Failed to fetch https://download.example/linux/ubuntu/dists/noble/InRelease  Could not resolve",
        "E: Failed to fetch store:/var/lib/apt/lists/partial/archive.example_ubuntu_dists_noble_main_Packages  x",
    ],
)
def test_another_suite_or_place_of_the_same_host_is_another_repository(line: str) -> None:
    assert not only(line).concerns((UBUNTU, CUDA, LOCAL))


def test_what_names_no_repository_may_be_about_any() -> None:
    for text in ("E: The list of sources could not be read.", "something odd happened", "E: "):
        assert only(text).concerns((UBUNTU,))
    assert only("Err:1 http://other.example/x noble InRelease\n  timed out").concerns(())


def test_lines_that_are_no_complaint_are_none() -> None:
    text = (
        "Hit:1 http://archive.example/ubuntu noble InRelease\nIgn:2 http://x.example y InRelease\n"
        "W: Target Packages (main/binary-amd64/Packages) is configured multiple times\n"
        "W: http://x.example/dists/y/InRelease: Key is stored in legacy trusted.gpg keyring\n"
        "N: See apt-secure(8)\nReading package lists...\n"
    )
    assert complaints(text) == ()


def test_each_repository_is_told_once_by_its_gravest_line_and_the_aftermath_is_none() -> None:
    text = (
        "Err:1 http://a.example/x noble InRelease\r\n  401  Unauthorized [IP: 192.0.2.7 443]\r\n"
        "E: Failed to fetch http://a.example/x/dists/noble/InRelease  401  Unauthorized [IP: 192.0.2.7 443]\r\n"
        "E: The repository 'http://a.example/x noble InRelease' is not signed.\r\n"
        "W: GPG error: http://b.example/y noble InRelease: The following signatures were invalid: BADSIG 01\r\n"
        "E: The repository 'http://b.example/y noble InRelease' is not signed.\r\n"
        "E: Some index files failed to download. They have been ignored, or old ones used instead.\r\n"
    )
    found = {fault.address.split("/")[2]: fault.fault for fault in refresh_faults(text)}
    assert found == {"a.example": JobFault.NETWORK, "b.example": JobFault.UNSIGNED}


def test_a_server_that_answers_with_an_error_of_its_own_may_answer_later() -> None:
    text = (
        "Err:2 http://archive.example/ubuntu noble-updates InRelease\n  503  Service Unavailable [IP: 192.0.2.7 80]\n"
        "Reading package lists...\nE: The repository 'http://archive.example/ubuntu noble-updates Release' does not "
        "have a Release file.\n"
    )
    assert only(text).passes
    assert not only(text.replace("503  Service Unavailable", "404  Not Found")).passes


def test_dnf_names_its_repositories_by_their_ids() -> None:
    text = (
        "Errors during downloading metadata for repository 'docker-ce-stable':\n"
        "  - Curl error (6): Couldn't resolve host name for https://download.example/repodata/repomd.xml\n"
        "Error: Failed to download metadata for repo 'docker-ce-stable': Cannot download repomd.xml\n"
        "Ignoring repositories: docker-ce-stable\nMetadata cache created.\n"
    )
    fault = only(text)
    assert (fault.name, fault.passes) == ("docker-ce-stable", True)
    assert not fault.concerns(("cuda-rhel9-x86_64",))
    assert fault.concerns(("cuda-rhel9-x86_64", "docker-ce-stable"))
    forged = "Error: Failed to download metadata for repo 'x': repomd.xml GPG signature verification error: Bad one"
    assert only(forged).fault is JobFault.UNSIGNED


def test_what_dnf_does_not_find_because_a_repository_is_away_may_be_found_later() -> None:
    away = "Error: Failed to download metadata for repo 'cuda': Cannot download repomd.xml\n"
    assert job_fault(f"{away}Error: Unable to find a match: nvidia-driver-3:580.95.05-1") is JobFault.NETWORK
    assert job_fault("Error: Unable to find a match: nvidia-driver-3:580.95.05-1") is JobFault.NOT_OFFERED


def test_a_repository_is_not_known_where_one_of_the_packages_is_offered_by_none() -> None:
    offered = (OfferedPackage("a", "1", (UBUNTU,)), OfferedPackage("a", "2", (CUDA,)), OfferedPackage("b", "1"))
    assert sources_of(offered, {("a", "1")}) == (UBUNTU,)
    assert sources_of(offered, {("a", "1"), ("b", "1")}, {("a", "1")}) == (UBUNTU,)
    assert sources_of(offered, {("a", "1"), ("b", "1")}, {("b", "1")}) == ()


def test_no_text_makes_a_reader_fail() -> None:
    rng = random.Random(5)
    words = [
        "E: ",
        "Err:1 ",
        "W: GPG ",
        "http://",
        "file:/",
        "x",
        "/dists/",
        " noble ",
        "InRelease",
        "'",
        "\n",
        "\r",
        " ",
    ]
    for _ in range(400):
        text = "".join(rng.choice([*words, chr(rng.randrange(1, 0x2500))]) for _ in range(30))
        for fault in refresh_faults(text):
            fault.concerns((UBUNTU, CUDA, LOCAL, text))


def test_a_repository_that_the_driver_does_not_come_from_is_only_noted() -> None:
    judged = judge(packages(refresh="E: The repository 'https://download.example/linux noble Release' is not signed."))
    assert judged.passed, judged.blocking
    assert "repository.other" in {finding.code for finding in judged.findings}


def test_a_repository_stands_in_the_way_where_what_it_offers_cannot_be_seen() -> None:
    unseen = packages(refresh="Err:1 https://download.example/linux noble InRelease\n  timed out", offered=())
    assert {"repository.unreachable", "package.not_offered"} <= codes(judge(unseen))


@pytest.fixture
def site(tmp_path: Path) -> DriverSite:
    return DriverSite(tmp_path)


def refreshes(site: DriverSite) -> int:
    return sum("update" in job.command for job in site.gpu_host.jobs.values())


def test_a_node_is_changed_though_a_repository_of_something_else_is_down(site: DriverSite) -> None:
    site.gpu_host.update_says = "Err:7 https://download.example/linux noble InRelease\n  Connection timed out"
    outcome = change(site)
    check_whole(site.gpu_host, NEW)
    assert refreshes(site) == 1
    assert any("Connection timed out" in note for note in outcome.notes)


def test_a_repository_of_the_driver_that_answers_after_a_while_is_waited_for(site: DriverSite) -> None:
    site.gpu_host.update_says = "Err:7 http://mirror x InRelease\n  Connection timed out"
    site.clock.after(150, lambda: setattr(site.gpu_host, "update_says", ""))
    change(site)
    check_whole(site.gpu_host, NEW)
    assert refreshes(site) > 1


def test_a_repository_of_the_driver_that_stays_away_is_asked_again_and_then_stops_it(site: DriverSite) -> None:
    site.gpu_host.update_says = "Err:7 http://mirror x InRelease\n  Connection timed out"
    with pytest.raises(NotQualified, match=r"do not answer: Err:7 http://mirror x InRelease Connection timed out"):
        change(site)
    check_whole(site.gpu_host, OLD)
    assert refreshes(site) > 2


def test_dnf_passes_over_a_repository_that_is_away_and_speaks_english() -> None:
    class Says:
        def __init__(self) -> None:
            self.asked: list[tuple[str, ...]] = []

        def run(self, arguments: tuple[str, ...], timeout_seconds: float = 60.0) -> Answer:
            self.asked.append(arguments)
            return Answer()

        def close(self) -> None:
            """Nothing is kept open."""

    says = Says()
    dnf = DnfPackages(says, "gpu-0001")
    dnf.offered(("nvidia-driver",))
    commands = (*says.asked, dnf.refresh_command() or (), dnf.install_command((), downgrade=False))
    assert all("--setopt=*.skip_if_unavailable=True" in command for command in commands)
    assert all("LC_ALL=C" in command for command in commands[1:])
