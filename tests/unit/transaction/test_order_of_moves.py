"""The order of moves: after each single one what is held fits, wherever any order does so, and all arrive."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

import pytest

from stowplan_agent.planning import cost, moves, seed_placement, solve
from stowplan_agent.transaction import difference, ordered
from stowplan_api.placement import ComponentPlacement, GroupPlacement, Placement
from stowplan_api.plan import Move
from stowplan_api.record import CalibrationRecord, Component

RECORDS = Path(__file__).parents[1] / "planning" / "records"
TIGHT = ["hard-1-keep-or-die-31gib.json", "hard-4-two-experts-48gib.json", "hard-6-one-shot-encoder-16gib.json"]


def entries(part: Component) -> Iterator[ComponentPlacement]:
    """A few of one component, from everything on the device to as little as there can be."""
    yield ComponentPlacement(name=part.name, mode="Resident")
    for pinned in (0, part.total_bytes()):
        yield ComponentPlacement(name=part.name, mode="Offload", pinned_bytes=(pinned,))
    for share in (0.0, 0.5) if part.groups else ():
        groups = []
        for group in part.groups:
            kept = int(share * len(group.layer_bytes))
            pins = (len(group.layer_bytes) - kept,)
            groups.append(GroupPlacement(name=group.name, resident_layers=kept, pinned_layers=pins))
        yield ComponentPlacement(name=part.name, mode="Layerwise", groups=tuple(groups))


def fitting(record: CalibrationRecord) -> list[Placement]:
    chosen = product(*(list(entries(part)) for part in record.components))
    every = [Placement(components=parts) for parts in chosen]
    return [placement for placement in every if cost(record, placement).feasible]


def way(current: Placement, made: Sequence[Move]) -> list[Placement]:
    """Every placement on the way, the first one included."""
    found = [current]
    for move in made:
        assert found[-1].entry(move.component) == move.from_
        parts = (move.to if entry.name == move.component else entry for entry in found[-1].components)
        found.append(Placement(components=tuple(parts)))
    return found


def lean_of(record: CalibrationRecord) -> Placement:
    return seed_placement(record.components, ranks=len(record.ranks))


@pytest.mark.parametrize("name", TIGHT)
def test_no_limit_is_passed_on_the_way_between_two_placements_that_fit(name: str) -> None:
    record, choose = CalibrationRecord.read(RECORDS / name), random.Random(7)
    fit = [*fitting(record), solve(record).placement]
    assert len(fit) > 1
    for _ in range(20):
        current, target = choose.choice(fit), choose.choice(fit)
        assert current is not None and target is not None
        made = ordered(record, current, target, lean_of(record))
        placements = way(current, made)
        assert placements[-1].components == target.components
        if moves(record, current, target) is not None:
            assert len(made) == len(difference(current, target))  # also what places the same bytes: it is reported
            assert all(cost(record, placement).feasible for placement in placements)


def test_where_no_order_is_safe_all_goes_by_the_lean_placement() -> None:
    name = "hard-8-no-safe-order-48gib"
    record = CalibrationRecord.read(RECORDS / f"{name}.json")
    current = Placement.read(RECORDS / f"{name}.current.json")
    target, lean = solve(record).placement, lean_of(record)
    assert target is not None and moves(record, current, target) is None
    made = ordered(record, current, target, lean)
    placements = way(current, made)
    assert placements[-1].components == target.components
    for placement in placements[1:-1]:  # the device's limit holds all the way
        assert not [one for one in cost(record, placement).violations if one.constraint == "device"]


def test_a_placement_against_itself_moves_nothing() -> None:
    record = CalibrationRecord.read(RECORDS / TIGHT[0])
    lean = lean_of(record)
    assert ordered(record, lean, lean, lean) == ()
