"""Who may talk to a BMC: Redfish sessions, HTTP Basic, expiry and lockout."""

from __future__ import annotations

import hmac
import secrets
from base64 import b64encode
from dataclasses import dataclass

from simulator.clock import SimClock

TIMEOUT_SECONDS = 1800  # simulated, since the last use
LOCKOUT_THRESHOLD = 5
LOCKOUT_SECONDS = 300  # simulated
MAX_SESSIONS = 64


@dataclass(slots=True)
class Session:
    id: str
    token: str
    user: str
    created: str
    last_used: float


class Sessions:
    """The sessions of one BMC with its one account."""

    def __init__(self, clock: SimClock, user: str, password: str) -> None:
        self.user = user
        self._password = password.encode()
        self._basic = "Basic " + b64encode(f"{user}:{password}".encode()).decode()
        self._clock = clock
        self._by_token: dict[str, Session] = {}
        self._next = 1
        self._failures = 0
        self._locked_until = 0.0

    @property
    def locked(self) -> bool:
        return self._clock.now() < self._locked_until

    @property
    def full(self) -> bool:
        return len(self.all()) >= MAX_SESSIONS

    def all(self) -> list[Session]:
        oldest = self._clock.now() - TIMEOUT_SECONDS
        self._by_token = {t: s for t, s in self._by_token.items() if s.last_used >= oldest}
        return list(self._by_token.values())

    def accepts(self, user: str, password: str) -> bool:
        """Check a password; a wrong one counts towards the lockout, and while locked none is right."""
        right = hmac.compare_digest(user.encode(), self.user.encode())
        right &= hmac.compare_digest(password.encode(), self._password)
        return self._count(right)

    def accepts_basic(self, header: str) -> bool:
        return self._count(hmac.compare_digest(header.encode(), self._basic.encode()))

    def open(self, created: str) -> Session:
        session = Session(f"S{self._next}", secrets.token_hex(16), self.user, created, self._clock.now())
        self._next += 1
        self._by_token[session.token] = session
        return session

    def use(self, token: str) -> Session | None:
        """The session of that token, None where it is unknown or has expired."""
        session = self._by_token.get(token)
        now = self._clock.now()
        if session is None or now - session.last_used > TIMEOUT_SECONDS:
            self._by_token.pop(token, None)
            return None
        session.last_used = now
        return session

    def find(self, id_: str) -> Session | None:
        return next((session for session in self.all() if session.id == id_), None)

    def close(self, session: Session) -> None:
        self._by_token.pop(session.token, None)

    def clear(self) -> None:
        self._by_token.clear()

    def _count(self, right: bool) -> bool:
        if self.locked:
            return False
        self._failures = 0 if right else self._failures + 1
        if self._failures >= LOCKOUT_THRESHOLD:
            self._failures = 0
            self._locked_until = self._clock.now() + LOCKOUT_SECONDS
        return right
