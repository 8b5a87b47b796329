"""Waves: canary first, frozen order, limits, closed units."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fleet.config import Pool, WaveSettings
from fleet.plan import Wave
from fleet.rounds import Candidate
from fleet.waves import max_out, plan_waves


def candidates(count: int, racks: int = 4, pool: str = "train", unit: int = 1, busy: int = 0) -> list[Candidate]:
    return [
        Candidate(
            node=f"{pool}-{n:04d}",
            pool=pool,
            rack=f"r{n % racks:02d}",
            model="HGX-H100-8" if n % 5 else "HGX-H200-8",
            vintage=f"v{n % 3}",
            unit=f"nvlink:{n // unit}" if unit > 1 else f"{pool}-{n:04d}",
            busy=n < busy,
            device_seconds=60.0,
        )
        for n in range(count)
    ]


def waves(found: list[Candidate], seed: int = 7, **pools: Pool) -> tuple[Wave, ...]:
    chosen = pools or {"train": Pool()}
    sizes = {pool: sum(c.pool == pool for c in found) for pool in chosen}
    limits = {c.rack: 2 for c in found}
    return plan_waves(found, chosen, sizes, limits, seed)


def test_the_canary_shows_every_rack_model_and_vintage_that_it_can() -> None:
    found = candidates(40)
    first = waves(found, train=Pool(waves=WaveSettings(canary=4)))[0]
    chosen = [c for c in found if c.node in first.nodes]
    assert {c.rack for c in chosen} == {"r00", "r01", "r02", "r03"}
    assert len({c.vintage for c in chosen}) == 3
    assert len({c.model for c in chosen}) == 2


def test_waves_grow_as_the_policy_says() -> None:
    def sizes(settings: WaveSettings) -> list[int]:
        return [len(wave.nodes) for wave in waves(candidates(30), train=Pool(waves=settings))]

    assert sizes(WaveSettings(canary=2)) == [2, 4, 8, 16]
    assert sizes(WaveSettings(canary=2, growth="linear", factor=2)) == [2, 6, 10, 12]
    assert sizes(WaveSettings(canary=3, growth="fixed", size=9)) == [3, 9, 9, 9]


def test_pools_that_are_not_production_come_first() -> None:
    found = candidates(4, pool="a_train") + candidates(4, pool="z_dev")
    pools = {"a_train": Pool(), "z_dev": Pool(production=False)}
    order = [wave.pool for wave in waves(found, **pools)]
    assert order == ["z_dev", "z_dev", "a_train", "a_train"]


def test_the_same_seed_gives_the_same_waves_and_another_seed_does_not() -> None:
    found = candidates(40)
    assert waves(found, 7) == waves(list(reversed(found)), 7)
    assert waves(found, 7) != waves(found, 8)


def test_idle_nodes_come_before_busy_ones_within_a_rack() -> None:
    found = candidates(40, racks=1, busy=20)
    order = [node for wave in waves(found)[1:] for node in wave.nodes]
    busy = {c.node for c in found if c.busy}
    assert not busy & set(order[:10])


def test_rounds_count_the_tightest_of_rack_limit_and_floor() -> None:
    wave = waves(candidates(40), train=Pool(capacity_floor=0.9, waves=WaveSettings(canary=40)))[0]
    assert wave.out_at_most == 4
    assert wave.rounds == 10
    assert wave.expected_seconds == 600.0


def test_a_floor_leaves_whole_nodes() -> None:
    assert [max_out(Pool(capacity_floor=floor), 30) for floor in (0.85, 0.9, 1.0, 0.0)] == [4, 3, 0, 30]


@given(st.integers(1, 90), st.integers(1, 9), st.integers(1, 6), st.integers(0, 2**31), st.integers(1, 8))
def test_every_node_is_in_exactly_one_wave_and_no_unit_is_split(
    count: int, racks: int, unit: int, seed: int, canary: int
) -> None:
    found = candidates(count, racks, unit=unit)
    planned = waves(found, seed, train=Pool(waves=WaveSettings(canary=canary)))
    nodes = [node for wave in planned for node in wave.nodes]
    assert sorted(nodes) == [c.node for c in found]
    homes = {node: wave.number for wave in planned for node in wave.nodes}
    by_unit: dict[str, set[int]] = {}
    for candidate in found:
        by_unit.setdefault(candidate.unit, set()).add(homes[candidate.node])
    assert all(len(numbers) == 1 for numbers in by_unit.values())
