"""PCR values as they are printed, baselines as they are written down, and their comparison."""

from __future__ import annotations

from hashlib import sha256

import pytest
from pydantic import ValidationError
from unit.tpm_tools import PCRS, SELECTION, pcr_text

from fleet.tpm_attest import PcrSelection
from fleet.tpm_baseline import PcrBaseline, PcrState, compare_pcrs, selection_text
from fleet.tpm_pcrs import composite, missing_pcrs, read_pcrs
from fleet.tpm_settings import TpmModelSettings, TpmSettings

ONE, TWO = "1" * 64, "2" * 64
TEXTS = {
    "tpm2_pcrread 5": f"  sha1:\n    0 : 0x{'A' * 40}\n  sha256:\n    0 : 0x{ONE}\n    10: 0x{TWO}\n",
    "tpm2_pcrread 4": f"sha1:\n  0 : 0x{'A' * 40}\nsha256:\n  0 : 0x{ONE}\n  10: 0x{TWO}\n",
    "tpm2_pcrlist 3": f"sha1 :\n  0  : {'a' * 40}\nsha256 :\n  0  : {ONE}\n  10 : {TWO}\n",
    "tpm2_quote": (
        f"quoted: ff544347\nsignature:\n  alg: rsassa\n  sig: 0123\npcrs:\n  sha1:\n    0 : 0x{'A' * 40}\n"
        f"  sha256:\n    0 : 0x{ONE}\n    10: 0x{TWO}\ncalcDigest: {ONE}\n"
    ),
    "CRLF": f"  sha1:\r\n    0 : 0x{'A' * 40}\r\n  sha256:\r\n    0 : 0x{ONE}\r\n    10: 0x{TWO}\r\n",
}


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in TEXTS.items()])
def test_every_version_of_the_tools_is_read(text: str) -> None:
    wanted = {"sha1": {0: b"\xaa" * 20}, "sha256": {0: bytes.fromhex(ONE), 10: bytes.fromhex(TWO)}}
    assert read_pcrs(text) == wanted


@pytest.mark.parametrize(
    "line",
    ["0 : 0x1234", "0 : ", "0 : 0x" + ONE + "00", "0 : none", "٠ : " + ONE, "0 : 0x" + ONE + "\n  0 : 0x" + TWO],
)
def test_a_value_that_cannot_be_right_is_not_read(line: str) -> None:
    assert 0 not in read_pcrs(f"sha256:\n  {line}\n").get("sha256", {})


def test_the_same_value_twice_is_one_value() -> None:
    assert read_pcrs(f"sha256:\n  0 : {ONE}\n  0 : 0x{ONE}\n") == {"sha256": {0: bytes.fromhex(ONE)}}


@pytest.mark.parametrize("heading", ["sha257:", "WARN: something", "selected-pcrs:", "pcrs:"])
def test_values_behind_an_unknown_heading_are_nobodys(heading: str) -> None:
    assert read_pcrs(f"sha256:\n{heading}\n  0 : {ONE}\n") == {}


def test_a_text_without_values_has_none() -> None:
    assert read_pcrs("") == {}
    assert read_pcrs("sha256:\nsha384:\n") == {}


def test_the_digest_is_over_the_values_in_the_order_of_the_selection() -> None:
    values = {"sha1": {1: b"\x01" * 20}, "sha256": {0: b"\x00" * 32, 3: b"\x03" * 32}}
    selections = (PcrSelection("sha256", (0, 3)), PcrSelection("sha1", (1,)))
    assert composite(selections, values, "sha256") == sha256(b"\x00" * 32 + b"\x03" * 32 + b"\x01" * 20).digest()
    assert missing_pcrs(selections, values) == ()
    assert missing_pcrs((PcrSelection("sha384", (0,)), PcrSelection("sha1", (1, 2))), values) == ("sha384:0", "sha1:2")


def test_no_digest_is_made_by_a_hash_that_is_not_trusted() -> None:
    with pytest.raises(ValueError, match="sha1 is no hash that is trusted"):
        composite((), {}, "sha1")


def test_a_selection_is_written_as_the_tools_take_it() -> None:
    selections = (PcrSelection("sha256", (0, 2, 7)), PcrSelection("sha384", (0,)))
    assert selection_text(selections) == "sha256:0,2,7+sha384:0"


def test_values_that_were_not_quoted_are_not_compared() -> None:
    baseline = PcrBaseline({("sha256", 0): frozenset({PCRS["sha256"][0]})})
    (finding,) = compare_pcrs(baseline, frozenset(), PCRS)
    assert (finding.state, finding.seen) == (PcrState.UNKNOWN, None)


def model(pcrs: object, **more: object) -> TpmModelSettings:
    return TpmModelSettings.model_validate({"pcrs": pcrs, **more})


def test_a_baseline_is_written_with_one_value_or_several() -> None:
    made = model({"sha256": {0: ONE, "7": ["0x" + TWO.upper(), ONE]}}, firmware=["0x7000200030001"]).baseline()
    assert made.allowed[("sha256", 0)] == {bytes.fromhex(ONE)}
    assert made.allowed[("sha256", 7)] == {bytes.fromhex(ONE), bytes.fromhex(TWO)}
    assert made.firmware == {"0007000200030001"}
    assert made.selection() == (PcrSelection("sha256", (0, 7)),)


@pytest.mark.parametrize(
    ("pcrs", "said"),
    [
        ({}, "at least 1 item"),
        ({"sha256": {}}, "pcrs.sha256 names no PCR"),
        ({"sha256": {0: []}}, "at least 1 item"),
        ({"sha256": {0: "12"}}, "2 hexadecimal digits; a sha256 value has 64"),
        ({"sha384": {0: ONE}}, "64 hexadecimal digits; a sha384 value has 96"),
        ({"sha256": {16: ONE}}, "any software may set this PCR back"),
        ({"sha256": {23: ONE}}, "any software may set this PCR back"),
        ({"sha256": {0: "xyz"}}, "String should match pattern"),
        ({"sha256": {24: ONE}}, "less than or equal to 23"),
        ({"sha1": {0: "1" * 40}}, "Input should be 'sha256'"),
        ({"sha256": {0: "0" * 64}}, "nothing was measured into"),
        ({"sha256": {7: "F" * 64}}, "nothing was measured into"),
    ],
)
def test_a_baseline_that_cannot_be_right_is_refused(pcrs: object, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        model(pcrs)


def test_an_untouched_pcr_of_the_operating_system_may_be_zero() -> None:
    assert model({"sha256": {15: "0" * 64}}).baseline().allowed[("sha256", 15)] == {bytes(32)}


def test_a_pcr_is_not_compared_and_ignored_at_once() -> None:
    with pytest.raises(ValidationError, match="PCR 0 is ignored, and has values in sha256"):
        model({"sha256": {0: ONE}}, ignored={0: "differs"})


def test_an_ignored_pcr_needs_a_reason() -> None:
    with pytest.raises(ValidationError):
        model({"sha256": {0: ONE}}, ignored={1: " "})


def test_the_settings_refuse_what_they_do_not_know() -> None:
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        TpmSettings.model_validate({"root": []})
    assert TpmSettings().nonce_lifetime.total_seconds() == 300
    assert TpmSettings.model_validate({"models": {"dgx-h100": {"pcrs": {"sha256": {0: ONE}}}}}).models


def test_the_text_of_the_tests_is_read_back() -> None:
    assert read_pcrs(pcr_text(PCRS)) == PCRS
    assert missing_pcrs(SELECTION, PCRS) == ()
