"""One kept connection to one BMC: reads, changes and the session. Used by one thread at a time."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import BinaryIO, TypeVar

import httpx

from adapters.redfish.answers import Answer, busy, error_for, login_refused, read_answer, transport_error
from adapters.redfish.settings import BmcLogin, BmcTls, parse_address, tls_context
from fleet.errors import ConfigurationError, CredentialsRejected, FleetError
from fleet.json_values import JsonObject, flag_at, text_at

_ROOT = "/redfish/v1/"
_SESSIONS = "/redfish/v1/SessionService/Sessions"  # DSP0266's own address, where the root names none
_LIMITS = httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=90.0)
# Logins answered with something that is not Redfish: a BMC that still starts, or else a refusal (lockout).
_DOUBTFUL_LOGINS = 2
_HEADERS = {"Accept": "application/json", "OData-Version": "4.0", "User-Agent": "gpufleet"}
_TOKEN = "X-Auth-Token"  # noqa: S105  a header's name
_REDIRECTS = {301, 302, 303, 307, 308}

# A page of a full inventory or log is a few MiB; more, or one that trickles past this, is no sound BMC.
_LARGEST_ANSWER = 64 * 2**20
_WORTH_KEEPING = 4096  # bytes
_BODY_TIMEOUTS = 4.0  # times the timeout of one read

_Error = TypeVar("_Error", bound=FleetError)
_Parts = list[tuple[str, tuple[str | None, bytes | BinaryIO, str]]]


class RedfishClient:
    """HTTP with a BMC's habits. `transport` replaces the network in tests."""

    def __init__(
        self,
        url: str,
        login: BmcLogin | None = None,
        tls: BmcTls | None = None,
        timeout_seconds: float = 30.0,
        node: str | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.address = parse_address(url)
        self._login = login
        self._node = node
        self._credential: dict[str, str] = {}
        self._session_uri: str | None = None
        self._refused: str | None = None
        self._doubtful = 0
        self._root: JsonObject | None = None
        self._expands = True
        self._last_answer: tuple[bytes, Answer] | None = None
        if transport is None:
            secure = self.address.origin.startswith("https:")
            context = tls_context((tls or BmcTls()) if secure else BmcTls())
            transport = httpx.HTTPTransport(verify=context, limits=_LIMITS, trust_env=False)
        self._transport = transport
        self._timeout = httpx.Timeout(timeout_seconds).as_dict()

    def root(self) -> JsonObject:
        """The service root, read once; DSP0266 keeps it open to all."""
        if self._root is None:
            answer = self._exchange("GET", _ROOT, "service root")
            if answer.status == 404:
                answer = self._exchange("GET", _ROOT.rstrip("/"), "service root")
            if answer.status == 401:
                answer = self._signed_in("GET", _ROOT, "service root")
            self._root = self._body(answer, "service root")
        return self._root

    def link(self, *path: str) -> str | None:
        """The address that the service root gives for e.g. "UpdateService"; None where it has none."""
        return text_at(self.root(), *path, "@odata.id")

    def get(self, uri: str, what: str) -> JsonObject:
        """Read one resource. Raises ResourceMissing, and as `fleet.ports.Bmc` says."""
        return self._body(self.fetch(uri, what), what)

    def fetch(self, uri: str, what: str) -> Answer:
        """Read one address and leave the judgement of its status to the caller."""
        self.root()
        return self._signed_in("GET", uri, what)

    def post(self, uri: str, body: Mapping[str, object], what: str) -> Answer:
        """Change something, once. A 401 to an old session was not carried out, so only that is sent again."""
        self.root()
        answer = self._signed_in("POST", uri, what, content=json.dumps(body).encode())
        if not 200 <= answer.status < 300:
            raise self._named(error_for(answer, what, changes=True))
        return answer

    def push(self, uri: str, parameters: Mapping[str, object], name: str, image: BinaryIO, what: str) -> Answer:
        """Send one image as DSP0266 multipart, read from `image` as it goes; never sent again."""
        self.root()
        self._sign_in()
        parts: _Parts = [
            ("UpdateParameters", (None, json.dumps(parameters).encode(), "application/json")),
            ("UpdateFile", (name, image, "application/octet-stream")),
        ]
        headers = {**_HEADERS, **self._credential}
        request = self._request("POST", self._url(uri), headers, self._timeout, what, files=parts)
        try:
            answer = self._carry_out(request)
        except httpx.RequestError as error:
            raise self._named(transport_error(error, what, changes=True)) from error
        if answer.status == 401 and _TOKEN in self._credential:
            self.forget_session()
            raise self._named(busy(f"{what}: the session had ended, nothing was taken; try again"))
        if not 200 <= answer.status < 300:
            raise self._named(error_for(answer, what, changes=True))
        return answer

    def expand_query(self) -> str | None:
        """The query that brings a collection with its members, None where the BMC does not offer it."""
        offered = flag_at(self.root(), "ProtocolFeaturesSupported", "ExpandQuery", "NoLinks")
        return "?$expand=.($levels=1)" if offered and self._expands else None

    def stop_expanding(self) -> None:
        """The offer did not hold."""
        self._expands = False

    def forget_session(self) -> None:
        """After a restart the old session is gone; the next request logs in again."""
        self._credential = {}
        self._session_uri = None

    def restarted(self) -> None:
        """A restart was asked for: connections may hang half open, and what was learnt may change."""
        self.forget_session()
        self._root = None
        self._transport.close()

    def close(self) -> None:
        """End the session, where there is one and the BMC still listens."""
        if self._session_uri is not None:
            with suppress(FleetError):
                self._exchange("DELETE", self._session_uri, "end of session", timeout_seconds=5.0)
            self.forget_session()
        self._transport.close()

    def _signed_in(self, method: str, uri: str, what: str, content: bytes | None = None) -> Answer:
        self._sign_in()
        answer = self._exchange(method, uri, what, content, changes=method == "POST")
        if answer.status == 401 and _TOKEN in self._credential:
            self.forget_session()
            self._sign_in()
            answer = self._exchange(method, uri, what, content, changes=method == "POST")
        if answer.status == 401:
            raise self._unauthorised(answer, what)
        return answer

    def _unauthorised(self, answer: Answer, what: str) -> FleetError:
        if self._login is None:
            return self._named(CredentialsRejected(f"{what}: the BMC wants credentials; give a user and a password"))
        if _TOKEN in self._credential:  # the login succeeded, so the password is right
            self.forget_session()
            return self._named(busy(f"{what}: a new session is refused; the BMC may be starting"))
        # Where the BMC offers sessions, a 404 to the login was perhaps a restart, and Basic never allowed.
        return self._judge_refusal(answer, doubtful=self.link("Links", "Sessions") is not None)

    def _sign_in(self) -> None:
        """Log in where that is still to be done. A refused login is never tried again by this object."""
        if self._refused is not None:
            raise self._named(CredentialsRejected(self._refused))
        if self._login is None or self._credential:
            return
        uri = text_at(self._root or {}, "Links", "Sessions", "@odata.id") or _SESSIONS
        user, password = self._login.user, self._login.password
        content = json.dumps({"UserName": user, "Password": password}).encode()
        answer = self._exchange("POST", uri, "login", content)
        full = any(message.key == "SessionLimitExceeded" for message in answer.messages)
        if 200 <= answer.status < 300 and answer.token:
            self._credential = {_TOKEN: answer.token}
            self._session_uri = answer.location or text_at(answer.body or {}, "@odata.id")
            self._doubtful = 0
        elif answer.status in (404, 405, 501) or full:
            pair = base64.b64encode(f"{user}:{password}".encode()).decode()
            self._credential = {"Authorization": f"Basic {pair}"}
        else:
            raise self._judge_refusal(answer)

    def _judge_refusal(self, answer: Answer, doubtful: bool = False) -> FleetError:
        error = login_refused(answer)
        self._credential = {}
        doubtful = doubtful or not isinstance(error, CredentialsRejected)
        if doubtful and answer.status in (400, 401, 403):
            self._doubtful += 1
            error = busy(f"login: refused with HTTP {answer.status}, perhaps while starting; ask again")
            if self._doubtful > _DOUBTFUL_LOGINS:
                error = CredentialsRejected(f"the BMC refused {self._doubtful} logins; check user and password")
        if isinstance(error, CredentialsRejected):
            self._refused = error.message
        return self._named(error)

    def _exchange(
        self,
        method: str,
        uri: str,
        what: str,
        content: bytes | None = None,
        changes: bool = False,
        timeout_seconds: float | None = None,
    ) -> Answer:
        """One request; a read is repeated once where a kept connection turned out to be closed."""
        kind = {"Content-Type": "application/json"} if content is not None else {}
        headers = {**_HEADERS, **self._credential, **kind}
        timeout = self._timeout if timeout_seconds is None else httpx.Timeout(timeout_seconds).as_dict()
        url = self._url(uri)
        for last in (method != "GET", True):
            request = self._request(method, url, headers, timeout, what, content=content)
            try:
                answer = self._carry_out(request)
            except httpx.RemoteProtocolError as error:
                if last or "without sending" not in str(error):
                    raise self._named(transport_error(error, what, changes=changes)) from error
                continue
            except httpx.RequestError as error:
                raise self._named(transport_error(error, what, changes=changes)) from error
            if method == "GET" and not last and answer.status in _REDIRECTS and answer.location:
                url = self._url(answer.location)
                continue
            return answer
        raise AssertionError("the second turn returns or raises")

    def _carry_out(self, request: httpx.Request) -> Answer:
        """Straight to the transport: redirects, cookies and hooks of httpx.Client double the CPU of a poll."""
        response = self._transport.handle_request(request)
        deadline = time.monotonic() + _BODY_TIMEOUTS * (self._timeout["read"] or 0.0)
        content = bytearray()
        try:
            for part in response.iter_bytes():
                content += part
                if len(content) > _LARGEST_ANSWER:
                    raise httpx.ReadError(f"an answer of more than {_LARGEST_ANSWER >> 20} MiB")
                if time.monotonic() > deadline:
                    raise httpx.ReadTimeout("the answer trickles and does not end")
        finally:
            response.close()
        return self._read(response, bytes(content))

    def _read(self, response: httpx.Response, content: bytes) -> Answer:
        """A visit reads the same inventory a dozen times; what is equal to the byte need not be parsed again."""
        if len(content) < _WORTH_KEEPING or response.status_code != 200:
            return read_answer(response, content)
        if self._last_answer is None or self._last_answer[0] != content:
            self._last_answer = content, read_answer(response, content)
        return self._last_answer[1]

    def _url(self, uri: str) -> str:
        return self.address.origin + self.address.path(uri)

    def _request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        timeout: Mapping[str, float | None],
        what: str,
        content: bytes | None = None,
        files: _Parts | None = None,
    ) -> httpx.Request:
        try:
            return httpx.Request(
                method, url, content=content, files=files, headers=headers, extensions={"timeout": timeout}
            )
        except (httpx.InvalidURL, UnicodeError) as error:  # from a link that the BMC gave
            raise self._named(ConfigurationError(f"{what}: the BMC gives an address that is none: {url!r}")) from error

    def _body(self, answer: Answer, what: str) -> JsonObject:
        if not 200 <= answer.status < 300:
            raise self._named(error_for(answer, what, changes=False))
        if answer.body is None:
            raise self._named(busy(f"{what}: not a JSON resource (cut, empty or HTML); the BMC may be starting"))
        return answer.body

    def _named(self, error: _Error) -> _Error:
        error.node = self._node
        return error
