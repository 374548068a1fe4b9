"""Pins of what is prefetched over unlike links: the corners that are tried are all there are, and pins lie between."""

from __future__ import annotations

import random
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from agreement import check_agreement
from early_records import early_record, unlike
from tables import TOLERANCE, best

from stowplan_agent.planning import solve
from stowplan_agent.planning.elastic import ALMOST
from stowplan_agent.planning.lane_load import LaneLoad
from stowplan_api.record import CalibrationRecord

STEPS = 40


def loaded(choose: random.Random, links: int, stays: int) -> tuple[LaneLoad, list[np.ndarray]]:
    """A load over so many links behind so many stays, and the seconds in which each link is free before it."""
    fast = tuple(choose.choice([0.1, 0.2, 0.4]) for _ in range(links))
    slow = tuple(one + choose.choice([0.0, 0.3, 0.7, 1.1]) for one in fast)
    rate = tuple(1000 * choose.choice([1, 2, 3]) / (s - f) if s > f else 0.0 for s, f in zip(slow, fast, strict=True))
    idle = [np.array([[choose.uniform(0, 1.5) for _ in range(stays)]]) for _ in range(links)]
    shares = tuple((choose.choice([0.25, 0.5, 1.0]), stay) for stay in range(stays))
    return LaneLoad("one", 1000, slow, fast, rate, shares, ()), idle


def exposed(load: LaneLoad, idle: list[np.ndarray], seconds: tuple[float, ...]) -> float:
    """Seconds that loads of these lengths leave exposed: each stay waits for its slowest rank."""
    late = ((share, max(t - one[0, stay] for t, one in zip(seconds, idle, strict=True))) for share, stay in load.stays)
    return sum(share * max(one, 0.0) for share, one in late)


@pytest.mark.parametrize(("links", "stays"), [(2, 1), (3, 1), (2, 2), (2, 3)])
def test_no_pins_are_better_than_the_corners_at_any_price(links: int, stays: int) -> None:
    choose = random.Random(links * 10 + stays)
    for _ in range(6):
        load, idle = loaded(choose, links, stays)
        prices = np.array([0.0, *(choose.uniform(0, 2e-3) for _ in range(4))])
        found = load.seconds(idle, prices)[0]
        steps = STEPS if links == 2 else STEPS // 3
        grid = [np.linspace(fast, slow, steps).tolist() for fast, slow in zip(load.fast, load.slow, strict=True)]
        for seconds in product(*grid):
            late = exposed(load, idle, seconds)
            locked = sum(r * (s - t) for r, s, t in zip(load.rate, load.slow, seconds, strict=True))
            assert (found <= late + prices * locked + 1e-12).all()


def taken(load: LaneLoad, pins: tuple[int, ...]) -> tuple[float, ...]:
    """Seconds of a load on each link with so many bytes pinned."""
    ends = zip(load.slow, load.fast, pins, strict=True)
    return tuple(slow - (slow - fast) * one / load.total for slow, fast, one in ends)


@pytest.mark.parametrize(("links", "stays"), [(2, 1), (3, 1), (2, 2), (2, 3)])
def test_bytes_are_divided_so_that_each_saves_what_its_piece_says(links: int, stays: int) -> None:
    choose = random.Random(links * 100 + stays)
    for _ in range(20):
        load, idle = loaded(choose, links, stays)
        pieces = load.pieces(idle)
        worths = [worth for worth, _ in pieces]
        assert worths == sorted(worths, reverse=True) and all(worth > 0 for worth in worths)
        left = exposed(load, idle, load.slow)
        locked = 0.0
        for worth, bytes_ in [(0.0, 0.0), *pieces]:
            left, locked = left - worth * bytes_, locked + bytes_
            for part in (0.5, 1.0):
                given = load.pins(idle, locked * part, locked * part)
                assert load.locks(given) <= locked * part + 2 * ALMOST
                if part == 1.0:  # Pins are whole bytes, a load a thousand of them.
                    assert exposed(load, idle, taken(load, given)) <= left + 3 * max(load.slow) / load.total
                    whole = load.pins(idle, locked)
                    assert all(0 <= more - less <= 1 for more, less in zip(whole, given, strict=True))
                    assert exposed(load, idle, taken(load, whole)) <= left + max(load.slow) * ALMOST
        assert np.isclose(left, load.seconds(idle, np.zeros(1))[0, 0])


@pytest.mark.parametrize("seed", [18, 41])
def test_pins_of_one_that_is_prefetched_over_unlike_links_are_all_tried(seed: int) -> None:
    """Records of which the proof once said that something is pinned whole or not at all."""
    choose = random.Random(seed)
    record = unlike(early_record(choose, ranks=2, count=2, tight=choose.choice(["pins", "all"])))
    plan, least = solve(record), best(record)
    assert plan.cost is not None and least is not None
    assert plan.proof["leftOut"] == [] and plan.cost.seconds <= least * (1 + TOLERANCE)
    check_agreement(record)


@pytest.mark.parametrize("scarce", [False, True])
def test_a_byte_that_takes_longer_than_all_others_is_not_lost_in_rounding(scarce: bool) -> None:
    """One byte a second over a pageable link: of one that is pinned in part, the rest would be a second late."""
    record = CalibrationRecord.read(Path(__file__).with_name("one-byte-a-second.json"))
    if not scarce:
        nodes = tuple(one.model_copy(update={"pinnable_bytes": one.host_bytes}) for one in record.nodes)
        record = record.model_copy(update={"nodes": nodes})
    plan = solve(record)
    assert plan.cost is not None and plan.cost.seconds <= plan.proof["boundSeconds"] * (1 + TOLERANCE)
