"""Sessions, credentials and the habits of a BMC that restarts."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator

import httpx
import pytest
from redfish_fake import INVENTORY, LOGIN, MANAGER, SESSIONS, SYSTEM, UPDATE, FakeBmc, component, problem

from adapters.redfish import BmcLogin, RedfishBmc
from adapters.redfish.client import RedfishClient
from adapters.redfish.settings import parse_address
from fleet.errors import BmcBusy, ConfigurationError, CredentialsRejected, NodeUnreachable
from fleet.model import ResetKind


def test_a_client_logs_in_once_for_many_reads() -> None:
    fake = FakeBmc()
    bmc = fake.bmc()
    for _ in range(3):
        bmc.read_reset_marks()
    assert fake.logins == 1


def test_an_old_session_is_renewed_once_after_a_restart() -> None:
    fake = FakeBmc()
    bmc = fake.bmc()
    bmc.read_reset_marks()
    fake.tokens.clear()
    assert bmc.read_reset_marks().bmc_last_reset == "1970-01-01T00:01:00Z"
    assert fake.logins == 2


def test_a_refused_login_is_never_tried_again_by_the_same_client() -> None:
    fake = FakeBmc(password="another")
    bmc = fake.bmc()
    for _ in range(5):
        with pytest.raises(CredentialsRejected, match="lock the account"):
            bmc.read_firmware()
    assert fake.logins == 1


def test_a_login_answered_by_html_is_waiting_at_first_and_a_refusal_in_the_end() -> None:
    fake = FakeBmc()
    fake.once["POST", SESSIONS] = [httpx.Response(401, text="<html>starting</html>") for _ in range(9)]
    bmc = fake.bmc()
    kinds = []
    for _ in range(5):
        with pytest.raises((BmcBusy, CredentialsRejected)) as caught:
            bmc.read_firmware()
        kinds.append(type(caught.value))
    assert kinds == [BmcBusy, BmcBusy, CredentialsRejected, CredentialsRejected, CredentialsRejected]
    assert fake.count("POST", SESSIONS) == 3


def test_a_login_during_a_restart_is_not_a_wrong_password() -> None:
    fake = FakeBmc()
    fake.once["POST", SESSIONS] = [problem(503, "Base.1.18.ServiceTemporarilyUnavailable", "later", Retry_After="30")]
    bmc = fake.bmc()
    with pytest.raises(BmcBusy) as caught:
        bmc.read_firmware()
    assert caught.value.retry_after_seconds == 30
    assert bmc.read_firmware() == ()


def test_a_bmc_without_sessions_is_read_with_basic() -> None:
    fake = FakeBmc(sessions=False)
    assert fake.bmc().read_system().serial == "S1"


def test_a_full_session_table_falls_back_to_basic_and_does_not_fail() -> None:
    fake = FakeBmc(sessions=False)
    fake.once["POST", SESSIONS] = [problem(503, "Base.1.18.SessionLimitExceeded", "too many")]
    assert fake.bmc().read_system().serial == "S1"


def test_without_credentials_a_closed_bmc_says_that_it_wants_some() -> None:
    with pytest.raises(CredentialsRejected, match="give a user"):
        FakeBmc().bmc(login=None).read_system()


def test_closing_ends_the_session() -> None:
    fake = FakeBmc()
    bmc = fake.bmc()
    bmc.read_reset_marks()
    bmc.close()
    assert fake.count("DELETE", f"{SESSIONS}/1") == 1


def test_the_bmcs_wait_is_handed_on_also_as_a_date() -> None:
    fake = FakeBmc()
    dates = {"Retry-After": "Thu, 01 Jan 1970 00:02:00 GMT", "Date": "Thu, 01 Jan 1970 00:01:15 GMT"}
    fake.once["GET", SYSTEM] = [httpx.Response(503, headers=dates)]
    with pytest.raises(BmcBusy) as caught:
        fake.bmc().read_reset_marks()
    assert caught.value.retry_after_seconds == 45
    assert caught.value.node == "n1"


@pytest.mark.parametrize("text", ['{"Id": "System_0", "Pow', "<html>Service starting</html>", ""])
def test_a_body_that_is_cut_or_html_is_a_bmc_that_starts(text: str) -> None:
    fake = FakeBmc()
    bmc = fake.bmc()
    bmc.read_reset_marks()
    fake.once["GET", SYSTEM] = [httpx.Response(200, text=text)]
    with pytest.raises(BmcBusy):
        bmc.read_reset_marks()


def test_a_404_in_the_middle_of_a_restart_is_transient() -> None:
    fake = FakeBmc()
    bmc = fake.bmc()
    bmc.read_reset_marks()
    fake.once["GET", SYSTEM] = [httpx.Response(404, text="not yet")]
    with pytest.raises(BmcBusy):
        bmc.read_reset_marks()
    assert bmc.read_reset_marks().host_last_reset == "2026-01-01T00:00:00Z"


def test_a_refused_connection_is_unreachable() -> None:
    fake = FakeBmc()
    fake.once["GET", "/redfish/v1/"] = [httpx.ConnectError("connection refused")]
    with pytest.raises(NodeUnreachable, match="refused"):
        fake.bmc().read_system()


def test_a_connection_closed_while_it_was_kept_is_opened_again_for_a_read() -> None:
    fake = FakeBmc()
    bmc = fake.bmc()
    bmc.read_reset_marks()
    closed = httpx.RemoteProtocolError("Server disconnected without sending a response.")
    fake.once["GET", SYSTEM] = [closed]
    assert bmc.read_reset_marks().host_last_reset is not None
    fake.once["GET", SYSTEM] = [closed, closed]
    with pytest.raises(NodeUnreachable):
        bmc.read_reset_marks()


def _certificate_error(code: int, message: str) -> httpx.ConnectError:
    fault = ssl.SSLCertVerificationError(1, message)
    fault.verify_code, fault.verify_message = code, message
    error = httpx.ConnectError(message)
    error.__cause__ = fault
    return error


def test_a_certificate_whose_dates_do_not_fit_is_a_clock_that_is_wrong_after_a_restart() -> None:
    fake = FakeBmc()
    fake.once["GET", "/redfish/v1/"] = [_certificate_error(10, "certificate has expired")]
    with pytest.raises(NodeUnreachable, match="clock"):
        fake.bmc().read_system()


def test_a_certificate_of_an_unknown_issuer_is_for_a_person() -> None:
    fake = FakeBmc()
    fake.once["GET", "/redfish/v1/"] = [_certificate_error(20, "unable to get local issuer certificate")]
    with pytest.raises(ConfigurationError, match="CA file"):
        fake.bmc().read_system()


def test_a_redirect_is_followed_on_this_host_and_never_to_another() -> None:
    fake = FakeBmc()
    bmc = fake.bmc()
    fake.once["GET", SYSTEM] = [httpx.Response(308, headers={"Location": f"{SYSTEM}/"})]
    assert bmc.read_reset_marks().host_last_reset is not None
    fake.once["GET", SYSTEM] = [httpx.Response(302, headers={"Location": f"https://evil.example{SYSTEM}"})]
    with pytest.raises(ConfigurationError, match="another host"):
        bmc.read_reset_marks()


def test_missing_privilege_is_told_with_what_to_do() -> None:
    fake = FakeBmc()
    fake.once["GET", UPDATE] = [problem(403, "Base.1.18.InsufficientPrivilege", "No privilege.")]
    with pytest.raises(ConfigurationError, match="privilege") as caught:
        fake.bmc().read_firmware()
    assert not isinstance(caught.value, CredentialsRejected)


def test_no_text_of_a_login_or_an_error_shows_the_password() -> None:
    fake = FakeBmc(password="another")
    with pytest.raises(CredentialsRejected) as caught:
        fake.bmc().read_firmware()
    shown = f"{caught.value} {caught.value.evidence} {LOGIN!r} {BmcLogin('a', 'hidden-word')}"
    assert LOGIN.password not in shown
    assert "hidden-word" not in shown


@pytest.mark.parametrize("url", ["bmc1", "ftp://bmc1", "https://", "http://h:port", "https://u:p@bmc1"])
def test_a_url_that_is_none_is_refused_without_showing_what_it_hides(url: str) -> None:
    with pytest.raises(ConfigurationError):
        RedfishBmc(url)


def test_a_prefix_before_redfish_is_kept_and_not_doubled() -> None:
    address = parse_address("http://127.0.0.1:8000/gh200/redfish/v1/")
    assert address.path("/redfish/v1/Systems") == "/gh200/redfish/v1/Systems"
    assert address.path("/gh200/redfish/v1/Systems") == "/gh200/redfish/v1/Systems"
    assert address.path("/redfish/v1/Systems?$expand=.") == "/gh200/redfish/v1/Systems?$expand=."


def test_addresses_are_found_once_and_used_again() -> None:
    fake = FakeBmc()
    fake.components(component("FW_BMC_0"))
    bmc = fake.bmc()
    bmc.read_firmware()
    before = len(fake.requests)
    bmc.read_firmware()
    assert fake.requests[before:] == [("GET", INVENTORY), ("GET", f"{INVENTORY}/FW_BMC_0")]


def test_a_client_can_be_made_for_plain_http_only_where_the_url_says_so() -> None:
    assert RedfishClient("http://127.0.0.1:1").address.origin == "http://127.0.0.1:1"
    assert RedfishClient("https://127.0.0.1:1").address.origin == "https://127.0.0.1:1"


def test_a_login_that_is_cut_is_unreachable_and_not_an_unknown_outcome() -> None:
    fake = FakeBmc()
    fake.once["POST", SESSIONS] = [httpx.ReadError("cut")]
    with pytest.raises(NodeUnreachable):
        fake.bmc().read_firmware()


def test_a_session_refused_right_after_its_login_is_a_bmc_that_starts() -> None:
    fake = FakeBmc()
    fake.once["GET", SYSTEM] = [httpx.Response(401), httpx.Response(401)]
    bmc = fake.bmc()
    with pytest.raises(BmcBusy):
        bmc.read_reset_marks()
    assert bmc.read_reset_marks().host_last_reset is not None


def test_a_login_that_was_not_found_during_a_restart_is_tried_as_a_session_again() -> None:
    fake = FakeBmc()
    fake.once["POST", SESSIONS] = [httpx.Response(404)]
    bmc = fake.bmc()
    with pytest.raises(BmcBusy):
        bmc.read_firmware()
    assert bmc.read_firmware() == ()


def test_after_a_bmc_reset_the_next_read_logs_in_anew() -> None:
    fake = FakeBmc()
    bmc = fake.bmc()
    fake.once["POST", f"{MANAGER}/Actions/Manager.Reset"] = [httpx.Response(204)]
    bmc.reset(ResetKind.BMC_RESET)
    bmc.read_reset_marks()
    assert fake.logins == 2


class Drip(httpx.SyncByteStream):
    """A body that never ends, a part at a time."""

    def __init__(self, part: bytes, pause_seconds: float) -> None:
        self._part = part
        self._pause = pause_seconds

    def __iter__(self) -> Iterator[bytes]:
        while True:
            time.sleep(self._pause)
            yield self._part


@pytest.mark.parametrize(("part", "pause"), [(b" " * 2**20, 0.0), (b" ", 0.05)], ids=["without end", "trickling"])
def test_an_answer_without_end_is_given_up(part: bytes, pause: float) -> None:
    fake = FakeBmc()
    fake.once["GET", UPDATE] = [httpx.Response(200, stream=Drip(part, pause))]
    client = RedfishClient(
        "https://bmc.example", LOGIN, timeout_seconds=0.1, transport=httpx.MockTransport(fake._answer)
    )
    with pytest.raises(NodeUnreachable, match=r"MiB|trickles"):
        client.get(UPDATE, "update service")


@pytest.mark.parametrize("link", ["https://[bmc", "/redfish/v1/\x00x", "/redfish/\udcff"])
def test_an_address_from_the_bmc_that_is_none_is_one_clear_error(link: str) -> None:
    client = RedfishClient("https://bmc.example", LOGIN, transport=httpx.MockTransport(FakeBmc()._answer))
    with pytest.raises((ConfigurationError, BmcBusy), match=r"gives an address that is none|firmware: "):
        client.get(link, "firmware")


def test_what_a_bmc_says_cannot_act_on_a_terminal() -> None:
    fake = FakeBmc()
    fake.resources[SYSTEM] |= {"Model": "HGX\x1b[2J\u202e H100\x9b"}
    assert fake.bmc().survey().system.model == "HGX\ufffd[2J\ufffd H100\ufffd"
