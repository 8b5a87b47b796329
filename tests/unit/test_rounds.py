"""What may be out together, and how many rounds that makes at least."""

from __future__ import annotations

from fleet.rounds import Candidate, Limits, Load, Round, fewest_rounds, load_of, most_at_once

LIMITS = Limits(out=4, racks={"r0": 2, "r1": 2, "r2": 2}, domains=1)


def load(*places: tuple[str, str | None]) -> Load:
    """A unit with a node in each of these (rack, NVLink domain)."""
    return load_of(
        tuple(
            Candidate(f"{rack}-{n}", "train", rack, "HGX-H100-8", "v0", "u", False, 60.0, domain)
            for n, (rack, domain) in enumerate(places)
        )
    )


def filled(*loads: Load) -> Round:
    one = Round(LIMITS)
    for number, each in enumerate(loads):
        one.add(number, each)
    return one


def test_a_full_rack_takes_no_further_node_and_another_does() -> None:
    one = filled(load(("r0", None)), load(("r0", None)))
    assert not one.fits(load(("r0", None)))
    assert one.fits(load(("r1", None)))


def test_a_rack_whose_domain_is_disturbed_takes_more_of_it_and_none_of_another() -> None:
    one = filled(load(("r0", "a")))
    assert one.fits(load(("r0", "a")))
    assert one.fits(load(("r0", None)))
    assert not one.fits(load(("r0", "b")))
    assert one.fits(load(("r1", "b")))


def test_the_floor_bounds_all_racks_together() -> None:
    one = filled(*(load((rack, None)) for rack in ("r0", "r0", "r1", "r1")))
    assert not one.fits(load(("r2", None)))


def test_what_was_taken_out_of_a_round_makes_room_again() -> None:
    one = filled(load(("r0", "a")), load(("r0", "a")))
    one.remove(0, load(("r0", "a")))
    assert (one.nodes, list(one.members)) == (1, [1])
    assert one.fits(load(("r0", "a")))
    one.remove(1, load(("r0", "a")))
    assert one.fits(load(("r0", "b"), ("r0", "b")))


def test_the_tightest_limit_makes_the_least_rounds() -> None:
    assert fewest_rounds([], LIMITS) == 0
    assert fewest_rounds([load((f"r{n % 3}", None)) for n in range(6)], LIMITS) == 2  # the floor: 6 of 4
    assert fewest_rounds([load(("r0", None))] * 5, LIMITS) == 3  # the rack: 5 of 2
    assert fewest_rounds([load(("r0", name)) for name in "abcd"], LIMITS) == 4  # one domain at a time
    assert fewest_rounds([load(("r0", "a"))] * 3 + [load(("r0", "b"))], LIMITS) == 3  # a takes two, b one


def test_domains_bound_what_is_out_at_once() -> None:
    assert most_at_once([load(("r0", name)) for name in "abcd"], LIMITS) == 1
    assert most_at_once([load(("r0", "a"))] * 3 + [load(("r1", None))], LIMITS) == 3
    assert most_at_once([load((f"r{n % 3}", None)) for n in range(9)], LIMITS) == 4
    assert most_at_once([], LIMITS) == 1
