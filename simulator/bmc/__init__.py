"""A stateful Redfish BMC per node, all in one event loop.

`BmcFarm` listens; `Bmc` is one board: power and resets (`device`), update tasks (`updates`), sessions
(`sessions`), boot and BIOS settings (`host_settings`), log (`events`). `tree*` renders resources from that
state, `service` answers a request, `actions` and `upload` carry out what changes something.

Resources use only schema versions that NVIDIA's own boards publish: DMTF's validator accepts them.
"""

from simulator.bmc.device import Bmc, Phase
from simulator.bmc.farm import BmcFarm

__all__ = ["Bmc", "BmcFarm", "Phase"]
