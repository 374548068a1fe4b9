"""The ring alone: whatever order layers run in, each finds its own weights; its seconds are the plan's recurrence."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan_agent.accelerators.emulated import EmulatedAccelerator, EmulatedCard
from stowplan_agent.planning.ring import Layer, run_seconds
from stowplan_agent.weights.ledger import Ledger, Tier
from stowplan_agent.weights.ring import Ring
from stowplan_agent.weights.unit import Unit
from unit.weights.stacks import emulated_card, units_of

BLOCK = 256


@contextmanager
def opened(
    groups: list[tuple[list[int], int]], passes: int | None, card: EmulatedAccelerator, order: list[int] | None = None
) -> Iterator[tuple[Ring, list[Unit], Ledger]]:
    """A ring of units of these numbers of blocks, by number in running order; afterwards the device is empty."""
    ledger = Ledger()
    units = [units_of(sizes, card, ledger) for sizes, _ in groups]
    listed = [unit for part in units for unit in part]
    rings = [(part, slots) for part, (_, slots) in zip(units, groups, strict=True)]
    ring = Ring("part", rings, card, ledger, None if order is None else [listed[number] for number in order])
    ring.open()
    try:
        ring.begin(passes)
        yield ring, listed, ledger
    finally:
        ring.close()
        assert ledger.total(Tier.DEVICE) == card.counters().weights == 0


def value(unit: Unit) -> float:
    """The one value that all of the unit's weights have, as a layer would see it now."""
    seen = {float(number) for view in unit._layout.views for number in view.place.tensor.unique()}
    assert len(seen) == 1
    return seen.pop()


def run(ring: Ring, unit: Unit) -> float:
    ring.use(unit)
    seen = value(unit)
    ring.done(unit)
    return seen


def test_layers_find_their_weights_pass_after_pass() -> None:
    with emulated_card() as card, opened([([1, 2, 3], 2), ([4, 1], 3)], 4, card) as (ring, units, ledger):
        expected = [value(unit) for unit in units]
        for _ in range(4):
            assert [run(ring, unit) for unit in units] == expected
        assert ledger.total(Tier.DEVICE) == BLOCK * (2 * 3 + 3 * 4)
        assert ledger.streamed_bytes == 4 * BLOCK * (1 + 2 + 3 + 4 + 1)  # nothing is copied after its last use


@pytest.mark.parametrize("slots", [2, 3])
@pytest.mark.parametrize("layers", [1, 2, 3, 7])
def test_fewer_layers_than_slots_and_more(layers: int, slots: int) -> None:
    with emulated_card() as card, opened([([1] * layers, slots)], None, card) as (ring, units, _):
        for _ in range(3):
            assert [run(ring, unit) for unit in units] == [index + 1.0 for index in range(layers)]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(2, 3)), min_size=1, max_size=3),
    st.lists(st.integers(0, 17), max_size=40),
    st.one_of(st.none(), st.integers(0, 5)),
    st.one_of(st.none(), st.lists(st.integers(0, 17), max_size=18, unique=True)),
)
def test_any_order_of_layers_gives_each_its_own_weights(
    groups: list[tuple[int, int]], order: list[int], passes: int | None, expected_order: list[int] | None
) -> None:
    """Not expected at all, skipped, repeated, backwards, more or fewer passes than expected: slower, never wrong."""
    with emulated_card() as card:
        parts = [([1 + index % 3 for index in range(count)], slots) for count, slots in groups]
        count = sum(count for count, _ in groups)
        expecting = None if expected_order is None else [number for number in expected_order if number < count]
        with opened(parts, passes, card, expecting) as (ring, units, ledger):
            expected = {unit: value(unit) for unit in units}
            slots = ledger.total(Tier.DEVICE)
            for number in order:
                unit = units[number % len(units)]
                assert run(ring, unit) == expected[unit]
                assert value(unit) == expected[unit]  # and of the host copy, once it has run
                assert ledger.total(Tier.DEVICE) == card.counters().weights == slots


def test_a_layer_that_is_called_out_of_order_restarts_the_sequence_there() -> None:
    with emulated_card() as card, opened([([1] * 6, 2)], 2, card) as (ring, units, ledger):
        run(ring, units[0])
        run(ring, units[4])
        before = ledger.streamed_bytes
        for index in (5, 0, 1):
            run(ring, units[index])
        assert ledger.streamed_bytes - before == 3 * BLOCK  # in order again: one copy a layer
        for index in (2, 3, 4, 5):
            run(ring, units[index])
        assert ledger.streamed_bytes == (3 + 8) * BLOCK  # 3 before the jump; the expected end still holds


def test_layers_run_in_the_order_that_is_known_and_not_as_they_are_listed() -> None:
    order = [4, 1, 5, 0]  # two groups of different sizes in turn; 2 and 3 do not run
    with emulated_card() as card, opened([([1, 2, 1], 2), ([4, 3, 4], 3)], 3, card, order) as (ring, units, ledger):
        for _ in range(3):
            assert [run(ring, units[number]) for number in order] == [2, 2, 3, 1]
        assert ledger.streamed_bytes == 3 * BLOCK * (3 + 2 + 4 + 1)


@pytest.mark.parametrize(("order", "again"), [([0, 1, 2, 3], 1), ([0], 0), ([], 0)])
def test_a_layer_that_is_not_expected_takes_one_copy_and_one_slot_for_the_time_that_it_runs(
    order: list[int], again: int
) -> None:
    with emulated_card() as card, opened([([1] * 5, 2)], 2, card, order) as (ring, units, ledger):
        for _ in range(2):
            for number in order[:1]:
                run(ring, units[number])
            assert run(ring, units[4]) == 5
            for number in order[1:]:
                run(ring, units[number])
        assert ledger.streamed_bytes == 2 * BLOCK * (len(order) + 1 + again)  # what was copied ahead gave up its slot


def test_layers_inside_one_another_are_served_while_slots_last_and_refused_after() -> None:
    with emulated_card() as card, opened([([1] * 4, 2)], None, card) as (ring, units, _):
        ring.use(units[0])
        ring.use(units[1])
        assert [value(units[0]), value(units[1])] == [1, 2]
        with pytest.raises(RuntimeError, match="component part: no slot of the ring is free"):
            ring.use(units[2])
        ring.done(units[1])
        ring.done(units[0])
        assert run(ring, units[2]) == 3


def test_a_slot_is_refilled_only_after_the_compute_that_read_it() -> None:
    class Watched(EmulatedAccelerator):
        """Notes for each copy its destination and the moment it waits for."""

        def copy(self, destination: torch.Tensor, source: torch.Tensor, *, pinned: bool, after: object) -> object:
            copies.append((destination.data_ptr(), after.moment))
            return super().copy(destination, source, pinned=pinned, after=after)

    copies: list[tuple[int, float]] = []
    card = Watched(EmulatedCard(1 << 20, 0))
    last_read: dict[int, float] = {}
    with opened([([2] * 5, 2), ([3] * 4, 3)], None, card) as (ring, units, _):
        generator = random.Random(5)
        for _ in range(4):
            for unit in units:
                seen = len(copies)
                ring.use(unit)
                slot = unit._layout.views[0].place.tensor.data_ptr()
                card.clock.advance(generator.random() * 1e-3)
                ring.done(unit)
                last_read[slot] = card.clock.compute
                for pointer, moment in copies[seen:]:
                    assert moment >= last_read.get(pointer, 0.0)
    card.close()


def test_slow_copies_and_slow_compute_never_change_what_a_layer_sees() -> None:
    generator = random.Random(11)

    def delay() -> None:
        time.sleep(generator.random() * 2e-3)  # the injected slowness itself, not synchronisation

    card = EmulatedAccelerator(EmulatedCard(1 << 20, 0), delay=delay)
    with opened([([1, 3, 2, 1], 2), ([2, 2, 2], 3)], None, card) as (ring, units, _):
        for _ in range(20):
            for index, unit in enumerate(units):
                ring.use(unit)
                if generator.random() < 0.3:
                    time.sleep(generator.random() * 1e-3)
                assert value(unit) == (index + 1 if index < 4 else index - 3)
                ring.done(unit)
    card.close()


@pytest.mark.parametrize("room", range(5))
def test_too_little_room_for_the_slots_takes_none(room: int) -> None:
    with emulated_card(capacity=room * 3 * BLOCK + 1) as card:
        ledger = Ledger()
        parts = [(units_of([3, 1], card, ledger), 2), (units_of([3], card, ledger), 3)]
        ring = Ring("part", parts, card, ledger)
        with pytest.raises(torch.OutOfMemoryError):
            ring.open()
        assert card.counters().weights == ledger.total(Tier.DEVICE) == 0


@pytest.mark.parametrize("order", [None, []], ids=["expected", "not expected"])
@pytest.mark.parametrize("failing", range(1, 8))
def test_a_copy_that_fails_on_the_link_fails_its_layer_and_leaves_nothing_held(
    failing: int, order: list[int] | None
) -> None:
    count = 0

    def delay() -> None:
        nonlocal count
        count += 1
        if count == failing:
            raise OSError("link down")

    card = EmulatedAccelerator(EmulatedCard(1 << 20, 0), delay=delay)
    with opened([([1, 2, 3], 2)], None, card, order) as (ring, units, _):
        seen = 0
        with pytest.raises(OSError, match="link down"):
            for _ in range(3):
                for index, unit in enumerate(units):
                    assert run(ring, unit) == index + 1
                    seen += 1
        assert seen == failing - 1
        ring.done(units[seen % 3])  # the hook of the layer that could not begin
        assert [value(unit) for unit in units] == [1, 2, 3]
    card.close()


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.tuples(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 40), st.booleans()), min_size=1, max_size=6),
                  st.integers(2, 3)),
        min_size=1, max_size=2,
    ),
    st.integers(1, 5), st.integers(0, 30), st.sampled_from([1.0, 1.05, 1.6]),
)  # fmt: skip
def test_on_the_clock_the_ring_is_the_recurrence_of_the_plan(
    groups: list[tuple[list[tuple[int, int, bool]], int]], passes: int, loose: int, contention: float
) -> None:
    """The same layers through `planning.ring` and through the engine: equal seconds, to rounding."""
    rate, latency, tick = 256e3, 5e-4, 1e-3
    with emulated_card(pinned_rate=rate, pageable_rate=rate, latency=latency, contention=contention) as card:
        sizes = [([blocks for blocks, _, streamed in layers if streamed], slots) for layers, slots in groups]
        with opened(sizes, passes, card) as (ring, units, _):
            start = card.record()
            for _ in range(passes):
                left = iter(units)
                card.clock.advance(loose * tick)
                for layers, _ in groups:
                    for _, seconds, streamed in layers:
                        unit = next(left) if streamed else None
                        if unit is not None:
                            ring.use(unit)
                        card.clock.advance(seconds * tick)
                        if unit is not None:
                            ring.done(unit)
            measured = card.elapsed(start, card.record())
        plan = [
            Layer(seconds * tick, number if streamed else -1, latency + blocks * BLOCK / rate if streamed else 0.0)
            for number, (layers, _) in enumerate(groups)
            for blocks, seconds, streamed in layers
        ]
        predicted = run_seconds(passes, loose * tick, plan, [slots for _, slots in groups], contention)
        assert measured == pytest.approx(predicted, rel=1e-9, abs=1e-12)
