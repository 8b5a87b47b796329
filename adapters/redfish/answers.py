"""From a BMC's answer, or its silence, to one of our errors: the only place where this is decided."""

from __future__ import annotations

import email.utils
import json
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass

import httpx

from fleet.bmc_messages import BmcMessage, Meaning, meaning_of, read_messages
from fleet.errors import (
    BmcBusy,
    ConfigurationError,
    CredentialsRejected,
    FleetError,
    NodeUnreachable,
    OutcomeUnknown,
)
from fleet.json_values import JsonObject, printable

# X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED (OpenSSL): a BMC's clock in 1970.
_DATE_FAULTS = {9, 10}
# Decided whatever the status: such an answer says that nothing was begun.
_SAYS_NO = {
    *(Meaning.ALREADY_CURRENT, Meaning.TRANSFER_PROTOCOL_REQUIRED, Meaning.BAD_REQUEST),
    *(Meaning.NOT_SUPPORTED, Meaning.IMAGE_REJECTED),
}
# Bytes without which no JSON text can hold a character that `printable` replaces: saves walking every answer.
_PERHAPS_UNPRINTABLE = re.compile(rb"\\u|\\[bf]|\x7f|\xc2[\x80-\x9f]|\xe2\x80[\xaa-\xae]|\xe2\x81[\xa6-\xa9]")
# Raised before anything was sent.
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


class ResourceMissing(BmcBusy):
    """HTTP 404 or 410. While a BMC restarts this is not "deleted", so it counts as transient."""


class RequestRefused(ConfigurationError):
    """The BMC understood and said no; `meaning` is what its messages come to."""

    meaning: Meaning = Meaning.OTHER


@dataclass(frozen=True, slots=True)
class Answer:
    """One HTTP answer. `body` is None where there is no JSON object; `readable` is False for cut JSON, HTML."""

    status: int
    body: JsonObject | None
    readable: bool
    location: str | None
    retry_after_seconds: float | None
    token: str | None = None

    @property
    def messages(self) -> tuple[BmcMessage, ...]:
        return read_messages(self.body) if self.body is not None else ()


def read_answer(response: httpx.Response, content: bytes) -> Answer:
    """Read a response whose whole body is `content`."""
    body: JsonObject | None = None
    readable = True
    if content.strip():
        try:
            parsed = json.loads(content)
            if _PERHAPS_UNPRINTABLE.search(content):
                parsed = printable(parsed)
        except (ValueError, RecursionError):
            parsed, readable = None, False
        body = parsed if isinstance(parsed, Mapping) else None
        readable = readable and body is not None
    return Answer(
        status=response.status_code,
        body=body,
        readable=readable,
        location=response.headers.get("Location"),
        retry_after_seconds=_retry_after(response.headers),
        token=response.headers.get("X-Auth-Token"),
    )


def busy(message: str, retry_after_seconds: float | None = None, evidence: tuple[str, ...] = ()) -> BmcBusy:
    """A BmcBusy with what the BMC asked for."""
    error = BmcBusy(message, evidence=evidence)
    error.retry_after_seconds = retry_after_seconds
    return error


def error_for(answer: Answer, what: str, changes: bool) -> FleetError:
    """The error of an answer that is not success.

    `what` names the request; `changes` says that it would have changed something, so that a failure
    inside the BMC leaves the outcome unknown.
    """
    evidence = tuple(str(message) for message in answer.messages)
    said = f"HTTP {answer.status}" + (f": {'; '.join(evidence)}" if evidence else "")
    meaning = meaning_of(answer.messages)
    if meaning in _SAYS_NO:
        return _refused(f"{what}: the BMC refused it ({said}); mend the request or the image", meaning, evidence)
    if answer.status in (404, 410):
        return ResourceMissing(f"{what}: not there ({said})", evidence=evidence)
    if answer.status in (423, 429, 503) or (meaning is Meaning.BUSY and answer.status >= 400):
        return busy(f"{what}: the BMC asks to wait ({said})", answer.retry_after_seconds, evidence)
    if answer.status == 403 or meaning is Meaning.NOT_AUTHORISED:
        return ConfigurationError(
            f"{what}: the account may not do this ({said}); give it the privilege", evidence=evidence
        )
    if answer.status >= 500 and answer.status != 501:
        if changes:
            return OutcomeUnknown(f"{what}: the BMC failed and may have begun ({said}); read back", evidence=evidence)
        return busy(f"{what}: the BMC failed ({said}); ask again", answer.retry_after_seconds, evidence)
    return _refused(f"{what}: the BMC refused it ({said}); mend the request or the image", meaning, evidence)


def _refused(message: str, meaning: Meaning, evidence: tuple[str, ...]) -> RequestRefused:
    error = RequestRefused(message, evidence=evidence)
    error.meaning = meaning
    return error


def transport_error(error: httpx.RequestError, what: str, changes: bool) -> FleetError:
    """The error of a request that got no complete answer."""
    fault = _certificate_fault(error)
    if fault is not None:
        if fault.verify_code in _DATE_FAULTS:
            why = f"{fault.verify_message}; the BMC's clock may be wrong after a restart"
            return NodeUnreachable(f"{what}: the certificate's dates do not fit ({why})")
        return ConfigurationError(
            f"{what}: the BMC's certificate is not trusted ({fault.verify_message}); "
            "give its CA file, and the host by the name that the certificate holds"
        )
    kind = type(error).__name__
    if changes and not isinstance(error, _NOT_SENT):
        return OutcomeUnknown(f"{what}: cut after it was sent ({kind}); read back before anything is repeated")
    return NodeUnreachable(f"{what}: no answer ({kind}: {error})")


def login_refused(answer: Answer) -> FleetError:
    """The error of an answer to a login that is neither a session nor "no sessions here"."""
    evidence = tuple(str(message) for message in answer.messages)
    if answer.status in (400, 401, 403) and answer.readable and meaning_of(answer.messages) is not Meaning.BUSY:
        said = "; ".join(evidence) or f"HTTP {answer.status}"
        return CredentialsRejected(
            f"the BMC refused the login ({said}); check user and password, more tries may lock the account",
            evidence=evidence,
        )
    return busy(f"login: HTTP {answer.status}, not a Redfish answer; ask again", answer.retry_after_seconds, evidence)


def _certificate_fault(error: BaseException) -> ssl.SSLCertVerificationError | None:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return cause
        cause = cause.__cause__ or cause.__context__
    return None


def _retry_after(headers: httpx.Headers) -> float | None:
    """Seconds, also from a date (against the BMC's own Date header, for its clock may be wrong)."""
    text = headers.get("Retry-After", "").strip()
    if not text:
        return None
    if text.isdigit():
        return float(text)
    try:
        until = email.utils.parsedate_to_datetime(text)
        sent = email.utils.parsedate_to_datetime(headers.get("Date", ""))
        return max(0.0, (until - sent).total_seconds())
    except (TypeError, ValueError):
        return None
