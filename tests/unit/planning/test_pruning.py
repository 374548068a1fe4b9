"""What rules options out must lose nothing: fronts against all pairs, and the smallest card against its reserve."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from examples import GIB, record_of
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan_agent.planning import solve, with_device_memory
from stowplan_agent.planning.limits import reserve_of
from stowplan_agent.planning.pareto import covered, undominated
from stowplan_agent.planning.rows import least

NUMBERS = st.one_of(st.integers(0, 6).map(float), st.just(float("inf")), st.just(float("-inf")))


@st.composite
def tables(draw: st.DrawFn) -> np.ndarray:  # type: ignore[type-arg]
    columns, rows = draw(st.integers(1, 5)), draw(st.integers(0, 40))
    numbers = draw(st.lists(NUMBERS, min_size=columns * rows, max_size=columns * rows))
    return np.array(numbers).reshape(rows, columns)


def front_by_pairs(table: np.ndarray) -> list[int]:  # type: ignore[type-arg]
    """Rows that no other row is nowhere larger than; of equal ones the first."""
    found = []
    for index, row in enumerate(table):
        below = (table <= row).all(axis=1)
        equal = (table == row).all(axis=1)
        if not (below & ~equal).any() and not equal[:index].any():
            found.append(index)
    return found


@settings(max_examples=100, deadline=None)
@given(tables())
def test_a_front_is_what_all_pairs_say(table: np.ndarray) -> None:  # type: ignore[type-arg]
    assert undominated(table).tolist() == front_by_pairs(table)


@pytest.mark.parametrize("columns", [1, 2, 3, 4])
def test_a_long_front_covers_all_that_is_not_in_it(columns: int) -> None:
    table = np.random.default_rng(columns).integers(0, 60, (2000, columns)).astype(np.float64)
    front = undominated(table)
    assert covered(table[front], table).all()
    assert front.tolist() == front_by_pairs(table)


def test_the_least_values_come_in_their_order() -> None:
    values = np.array([3.0, 1.0, 2.0, 1.0, 0.0, 2.0])
    assert [least(values, count).tolist() for count in (0, 2, 4, 9)] == [[], [4, 1], [4, 1, 3, 2], [4, 1, 3, 2, 5, 0]]


@pytest.mark.parametrize(
    ("used", "adaptive", "measured", "given"),
    list(product([0, 1, 7 * GIB + 3, 90 * GIB], [0, 1], [0, 2 * GIB + 1], [None, 5])),
)
def test_a_card_is_the_smallest_beside_its_reserve(used: int, adaptive: int, measured: int, given: int | None) -> None:
    record = record_of("small/infeasible-02.json")
    interval = record.intervals[0].model_copy(update={"adaptive": bool(adaptive), "reserve_bytes": measured})
    reserve = reserve_of(record, interval, record.ranks[0].model_copy(update={"reserve_bytes": given}))
    card = int(reserve.card_with(np.array([used]))[0])
    assert card - reserve.of(card) >= used > card - 1 - reserve.of(card - 1)
    assert reserve.of(card) == given if given is not None else reserve.of(card) >= max(GIB // 2, measured)


@pytest.mark.parametrize("other", [{"adaptive": True}, {"reserve_bytes": 3 * GIB}])
@pytest.mark.parametrize("place", range(3))
def test_intervals_with_other_reserves_share_the_smallest_card(place: int, other: dict[str, object]) -> None:
    record = with_device_memory(record_of("small/infeasible-02.json"), GIB)
    intervals = [
        one.model_copy(update=other if index % 3 == place else {}) for index, one in enumerate(record.intervals)
    ]
    record = record.model_copy(update={"intervals": tuple(intervals)})
    needed = next(c.needed_bytes for c in solve(record).would_fit if c.what == "deviceMemory")
    assert needed is not None
    assert solve(with_device_memory(record, needed)).status == "Optimal"
    assert solve(with_device_memory(record, needed - 1)).status == "Infeasible"
