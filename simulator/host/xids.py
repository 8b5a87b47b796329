"""The Xids of a driver that crashes now and then: a Poisson process in simulated time, drawn by the fleet's seed."""

from __future__ import annotations

import random

from simulator.host.state import HostState

_TEXTS = {
    31: "pid=2711, name=python3, Ch 00000008, intr 10000000. MMU Fault: ENGINE GRAPHICS GPC0 GPCCLIENT_T1_0 faulted",
    79: "GPU has fallen off the bus.",
    94: "pid=2711, name=python3, Contained: SM (0x1). RST: No, D-RST: No",
    109: "pid=2711, name=python3, Ch 00000010, errorString CTX SWITCH TIMEOUT, Info 0x5c013",
    119: "pid=2711, name=python3, Timeout after 6s of waiting for RPC response from GPU0 GSP! "
    "Expected function 76 (GSP_RM_CONTROL) (0x20802002 0x8).",
}


class Xids:
    """One node's. `last` is each GPU's newest Xid since the module was loaded, as DCGM shows it."""

    def __init__(self, host: HostState, seed: int) -> None:
        self._host = host
        self._rng = random.Random(f"{seed} xid {host.machine.name}")
        self._left = self._rng.expovariate(1.0)  # exposure until the next one
        self._seen = host.machine.clock.now()
        self.last: dict[int, int] = {}

    def catch_up(self) -> None:
        """Write what happened since the last look. To be called before the driver changes."""
        host, now = self._host, self._host.machine.clock.now()
        passed, self._seen = now - self._seen, now
        if host.loaded is None or not host.machine.up:
            return
        flaw = host.faults.flaw(host.loaded.release)
        per_second = flaw.xid_per_hour / 3600
        while per_second * passed >= self._left:
            passed -= self._left / per_second
            self._left = self._rng.expovariate(1.0)
            self._happened(flaw.xid, now - passed)
        self._left -= per_second * passed

    def _happened(self, code: int, at: float) -> None:
        host = self._host
        slot = self._rng.randrange(host.machine.gpus)
        self.last[slot] = code
        text = _TEXTS.get(code, "pid=2711, name=python3, Ch 00000008")
        uptime = max(0.0, at - host.machine.last_boot)
        host.log(f"NVRM: Xid (PCI:0000:{0x18 + slot * 0x11:02x}:00): {code}, {text}", uptime)
        host.truth("xid", gpu=slot, code=code, version=host.loaded.release if host.loaded else "")
