"""When weights that only visit come and go, and what an observer of it hears."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from stowplan_agent.weights import Timeline, WeightsEngine
from stowplan_agent.weights.ledger import Tier
from stowplan_agent.weights.timeline import Stretch
from unit.weights.stacks import engine_of, offload


class Diary:
    """Writes down what the hooks report, and the device bytes of weights at each point."""

    def __init__(self, engine: WeightsEngine) -> None:
        self.engine = engine
        self.lines: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *where: self.lines.append((name, *where, self.engine.ledger.total(Tier.DEVICE)))


def test_an_observer_hears_each_call_and_layer_once_and_in_order() -> None:
    with engine_of("half") as it:
        diary = Diary(it.engine)
        it.engine.observer = diary
        with it.engine.request():
            it.stacks["part"].encode(it.x)
        it.engine.observer = None
        names = [(line[0], line[-2]) for line in diary.lines]
        layers = [
            (event, index) for count in (5, 4) for index in range(count)
            for event in ("layer_awaited", "layer_entered", "layer_left")
        ]  # fmt: skip
        assert names == [
            ("component_awaited", "encode"), ("component_entered", "encode"), *layers, ("component_left", "encode")
        ]  # fmt: skip


def test_visitors_leave_with_their_last_expected_call_and_a_prefetch_comes_before_its_own() -> None:
    with engine_of("offload", "one", "two") as it:
        one, two = (component.total_bytes() for component in it.engine.describe())
        it.engine.place(offload("two", prefetch=True))
        it.engine.timeline = Timeline([Stretch("one", 2, 2), Stretch("two", 1, 1), Stretch(None, 1, 1)])
        it.engine.observer = diary = Diary(it.engine)
        held = []
        with it.engine.request():
            for name in ("one", "one", "two"):
                it.stacks[name](it.x)
                held.append(it.engine.ledger.total(Tier.DEVICE))
        assert held == [one + two, two, 0]
        entered = [line[-1] for line in diary.lines if line[0] == "component_entered"]
        assert entered == [one + two, one + two, two]
        it.engine.observer = None


def test_a_prefetch_beside_a_streaming_component_comes_a_unit_a_layer() -> None:
    with engine_of("streamed", "one", "two") as it:
        it.engine.place(offload("two", prefetch=True))
        it.engine.timeline = Timeline([Stretch("one", 1, 1), Stretch("two", 1, 1)])
        it.engine.observer = diary = Diary(it.engine)
        with it.engine.request():
            it.stacks["one"](it.x)
            held = it.engine.ledger.held("two", Tier.DEVICE)
            assert torch.equal(it.stacks["two"](it.x), it.expected)
        it.engine.observer = None
        entered = [line[-1] for line in diary.lines if line[0] == "layer_entered" and line[1] == "one"]
        assert entered == sorted(entered) and len(set(entered)) == len(entered)
        assert held == it.engine.describe()[1].total_bytes()


def test_two_intervals_of_one_component_in_a_row_bring_it_in_once() -> None:
    with engine_of("offload", "one", "two") as it:
        it.engine.timeline = Timeline([Stretch("one", 1, 1), Stretch("one", 2, 2), Stretch("two", 1, 1)])
        before = it.engine.ledger.streamed_bytes
        with it.engine.request():
            for name in ("one", "one", "one", "two"):
                it.stacks[name](it.x)
        streamed = it.engine.ledger.streamed_bytes - before
        assert streamed == sum(component.total_bytes() for component in it.engine.describe())


def test_a_request_that_departs_from_what_was_expected_is_still_right() -> None:
    with engine_of("streamed", "one", "two") as it:
        it.engine.timeline = Timeline([Stretch("one", 1, 1), Stretch("two", 1, 1)])
        with it.engine.request():
            for name in ("two", "one", "one", "two", "two"):
                assert torch.equal(it.stacks[name](it.x), it.expected)
