"""Bundles: what a manifest may say, and what of it a node needs."""

from __future__ import annotations

import pytest

from fleet.activation import Progress, progress, stages
from fleet.bundle import Bundle, BundleEntry, parse_bundle, resets_needed
from fleet.errors import BundleRejected, NotQualified
from fleet.model import FirmwareComponent, FirmwareRole, ResetKind
from fleet.plan import Change, changes_for

GPU = "HGX_FW_GPU_SXM_1"


def entry(name: str = "gpu", match: str = "HGX_FW_GPU_SXM_*", version: str = "96.00.A5.00.03") -> BundleEntry:
    return BundleEntry(
        name=name, match=(match,), version=version, image=f"{name}.bin", sha256="0" * 64, reset=ResetKind.HOST_REBOOT
    )


def bundle(*entries: BundleEntry) -> Bundle:
    return Bundle(version=1, name="hgx", release="1", fits=("HGX-H100-8",), entries=entries or (entry(),))


def component(
    version: str | None = "96.00.74.00.01",
    staged: str | None = None,
    role: FirmwareRole = FirmwareRole.ACTIVE,
    id: str = GPU,
    updateable: bool | None = True,
) -> FirmwareComponent:
    return FirmwareComponent(id, version, staged, role, "Enabled", "OK", updateable, f"/fw/{id}", id)


def needs(found: FirmwareComponent, wanted: Bundle | None = None) -> tuple[Change, ...]:
    return changes_for(wanted or bundle(), "HGX-H100-8", (found,))


def test_an_older_component_is_changed_and_an_equal_one_is_not() -> None:
    assert [change.component for change in needs(component())] == [GPU]
    assert needs(component("96.00.a5.00.03")) == ()


def test_a_staged_version_is_known_to_wait_for_its_reset() -> None:
    assert needs(component(staged="96.00.A5.00.03"))[0].staged


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (component("96.00.FF.00.01"), "newer than"),
        (component("G520.0200.00.05"), "no order"),
        (component(None), "cannot be told"),
        (component(role=FirmwareRole.ABSENT), "cannot be told"),
        (component(updateable=False), "not updateable"),
    ],
)
def test_what_may_not_be_changed_is_left_out_with_its_reason(found: FirmwareComponent, why: str) -> None:
    with pytest.raises(NotQualified, match=why):
        needs(found)


def test_a_backup_image_is_not_taken_for_the_running_version() -> None:
    both = (component(), component("96.00.10.00.01", role=FirmwareRole.BACKUP, id="HGX_FW_GPU_SXM_9"))
    assert [change.component for change in changes_for(bundle(), "HGX-H100-8", both)] == [GPU]


def test_a_version_from_which_no_direct_upgrade_is_allowed_is_refused_by_name() -> None:
    wanted = bundle(entry().model_copy(update={"direct_from": ("96.00.89.*",)}))
    with pytest.raises(NotQualified, match=r"from 96\.00\.89\.\*"):
        needs(component(), wanted)


def test_a_node_of_another_model_or_without_the_component_does_not_fit() -> None:
    with pytest.raises(NotQualified, match="not DGX-A100"):
        changes_for(bundle(), "DGX-A100", (component(),))
    with pytest.raises(NotQualified, match="no component"):
        changes_for(bundle(), "HGX-H100-8", ())


def test_changes_keep_the_order_of_the_bundle() -> None:
    wanted = bundle(entry("erot", "HGX_FW_ERoT_*", "01.04.0026"), entry())
    inventory = (component(), component("01.04.0008", id="HGX_FW_ERoT_BMC_0"))
    assert [c.entry for c in changes_for(wanted, "HGX-H100-8", inventory)] == ["erot", "gpu"]


def test_the_strongest_reset_stands_for_all_and_the_bmc_goes_before_the_host() -> None:
    assert resets_needed(frozenset(ResetKind)) == (ResetKind.AC_CYCLE,)
    assert resets_needed(frozenset({ResetKind.HOST_REBOOT, ResetKind.BMC_RESET})) == (
        ResetKind.BMC_RESET,
        ResetKind.HOST_REBOOT,
    )
    assert resets_needed(frozenset({ResetKind.NONE})) == ()


def test_an_entry_that_must_be_active_first_ends_a_stage() -> None:
    first = entry("erot").model_copy(update={"activate_first": True})
    assert [[e.name for e in stage.entries] for stage in stages(bundle(first, entry("bmc"), entry("gpu")))] == [
        ["erot"],
        ["bmc", "gpu"],
    ]


def test_progress_is_the_hardwares_word_and_unknown_is_not_old() -> None:
    change = Change(component=GPU, current="96.00.74.00.01", desired="96.00.A5.00.03", entry="gpu")
    assert progress(change, [component()]) is Progress.OLD
    assert progress(change, [component(staged="96.00.A5.00.03")]) is Progress.STAGED
    assert progress(change, [component("96.00.A5.00.03")]) is Progress.ACTIVE
    assert progress(change, [component(None)]) is Progress.UNKNOWN
    assert progress(change, []) is Progress.UNKNOWN


MANIFEST = """\
version: 1
name: hgx
release: "24.11"
fits: [HGX-H100-8]
entries:
  - {name: gpu, match: ["HGX_FW_GPU_*"], version: "1.0", image: images/gpu.bin, sha256: "%s", reset: host_reboot}
""" % ("0" * 64)


def test_a_right_manifest_is_read() -> None:
    assert parse_bundle(MANIFEST, "bundle.yaml").entries[0].reset is ResetKind.HOST_REBOOT


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("reset: host_reboot", "resets: host_reboot", "did you mean 'reset'"),
        ("images/gpu.bin", "../gpu.bin", "inside the bundle"),
        ("images/gpu.bin", "/etc/passwd", "inside the bundle"),
        ("0" * 64, "abc", "sha256"),
        ("reset: host_reboot", "reset: power", r"entries\[0\].reset"),
        ("version: 1\n", "version: 2\n", "version"),
        ("fits: [HGX-H100-8]", "fits: []", "fits"),
    ],
)
def test_a_wrong_manifest_says_what_is_wrong(old: str, new: str, why: str) -> None:
    with pytest.raises(BundleRejected, match=why):
        parse_bundle(MANIFEST.replace(old, new), "bundle.yaml")


SHORT = """\
version: 1
name: hgx
release: "1"
fits: [HGX-H100-8]
reset_seconds: {host_reboot: 60}
entries:
  - {name: gpu, match: [GPU_*], version: "2", image: gpu.bin, sha256: "SHA", reset: host_reboot}
""".replace("SHA", "0" * 64)


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("host_reboot: 60", "host_reboot: -60", "bundle.yaml:5: reset_seconds.host_reboot"),
        ("host_reboot: 60", "host_reboot: .inf", "bundle.yaml:5: reset_seconds.host_reboot"),
        ("name: hgx", "name: hgx\nname: other", "name: given 2 times"),
        ('version: "2"', 'verson: "2"', "bundle.yaml:7: entries[0].verson: unknown key; did you mean 'version'?"),
    ],
)
def test_a_fault_of_a_manifest_names_its_line_and_the_nearest_right_key(right: str, wrong: str, said: str) -> None:
    assert parse_bundle(SHORT, "bundle.yaml").reset_seconds[ResetKind.HOST_REBOOT] == 60
    assert right in SHORT
    with pytest.raises(BundleRejected) as caught:
        parse_bundle(SHORT.replace(right, wrong), "bundle.yaml")
    assert said in str(caught.value)
