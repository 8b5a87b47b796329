"""Bus bandwidth of collectives: what nccl-tests make of the time, so that runs of different size compare.

Source: NVIDIA/nccl-tests doc/PERFORMANCE.md; GB/s are 10^9 bytes a second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

_FACTORS: Mapping[str, Callable[[int], float]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "alltoall": lambda n: (n - 1) / n,
    "gather": lambda n: (n - 1) / n,
    "scatter": lambda n: (n - 1) / n,
    "hypercube": lambda n: (n - 1) / n,
    "broadcast": lambda _: 1.0,
    "reduce": lambda _: 1.0,
    "sendrecv": lambda _: 1.0,
}


def bus_factor(collective: str, ranks: int) -> float:
    """Bus bandwidth over algorithm bandwidth for a collective ("all_reduce", "all_reduce_perf") of `ranks` GPUs.

    Raises ValueError for a collective that nccl-tests do not have and for less than one rank.
    """
    name = collective.removesuffix("_perf").replace("alltoallv", "alltoall")
    if name not in _FACTORS or ranks < 1:
        raise ValueError(f"no bus bandwidth for {collective!r} of {ranks} ranks; known are {', '.join(_FACTORS)}")
    return _FACTORS[name](ranks)


def algorithm_bandwidth(size_bytes: float, time_us: float) -> float:
    """GB/s: the collective's size over its time. Raises ValueError for a time that is not above 0."""
    if time_us <= 0:
        raise ValueError(f"a time of {time_us} µs gives no bandwidth")
    return size_bytes / time_us / 1e3


def bus_bandwidth(collective: str, algorithm_gb_s: float, ranks: int) -> float:
    """GB/s that each link carries. Raises ValueError as `bus_factor` does."""
    return algorithm_gb_s * bus_factor(collective, ranks)
