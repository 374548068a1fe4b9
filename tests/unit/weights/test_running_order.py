"""The order in which layers run is learned from what runs: after one interval each that runs is copied once a pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from stowplan_agent.weights import Timeline, WeightsEngine
from stowplan_agent.weights.keyed_units import KeyedUnits
from stowplan_agent.weights.ledger import Ledger, Tier
from stowplan_agent.weights.running_order import RunningOrder
from stowplan_agent.weights.timeline import Stretch
from unit.weights.stacks import check, emulated_card, engine_of, layerwise, units_of
from unit.weights.tuners import load

Step = tuple[str, int]
Pass = Sequence[Step]
GROUPS = {"down": 4, "up": 5, "mid": 4}
STEPS: list[Step] = [(group, index) for group, count in GROUPS.items() for index in range(count)]
RUNS: list[Step] = [step for group in ("down", "mid", "up") for step in STEPS if step[0] == group]
WOVEN = [step for pair in zip(STEPS[:4], STEPS[-4:], strict=True) for step in pair]
NO_UP = [step for step in RUNS if step[0] != "up"]


class Block(nn.Module):
    """Square matrices, so that blocks can follow one another in any order."""

    def __init__(self, matrices: int) -> None:
        super().__init__()
        for number in range(matrices):
            self.register_parameter(f"weight_{number}", nn.Parameter(torch.rand(8, 8) - 0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for weight in self.parameters():
            x = torch.tanh(x @ weight) + x
        return x


class Model(nn.Module):
    """Three groups of layers of different sizes, listed in another order than they run in. It runs what it is told."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        for matrices, (group, count) in enumerate(GROUPS.items(), 1):
            self.add_module(group, nn.ModuleList(Block(matrices) for _ in range(count)))
        self.scale = nn.Parameter(torch.rand(8))

    def forward(self, x: torch.Tensor, steps: Pass) -> torch.Tensor:
        for group, index in steps:
            if group == "fail":
                raise ValueError("between two layers")
            x = getattr(self, group)[index](x)
        return x * self.scale

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        return self(x, STEPS[:4])

    def decode(self, x: torch.Tensor) -> torch.Tensor:
        return self(x, STEPS[4:])


class Watch:
    """Notes the most device bytes of weights that there were while a layer ran."""

    def __init__(self, engine: WeightsEngine) -> None:
        self.engine = engine
        self.most = 0

    def layer_entered(self, *_: Any) -> None:
        self.most = max(self.most, self.engine.ledger.total(Tier.DEVICE))

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


@contextmanager
def streaming(kept: int = 0, slots: int = 2) -> Iterator[SimpleNamespace]:
    """The model, ``kept`` layers of each group resident; ``bytes_of`` what a pass has to copy."""
    with emulated_card() as card, torch.no_grad():
        model, twin, engine = Model(), Model(), WeightsEngine(card)
        engine.adopt({"part": model})
        engine.place(layerwise(dict.fromkeys(GROUPS, kept), slots=slots, policy="Leading"))
        sizes = {group.name: group.layer_bytes[0] for group in engine.describe()[0].groups}
        x = torch.rand(2, 8)

        def ask(*passes: Pass) -> int:
            """One request of these passes, as expected; returns the bytes that it copied."""
            before = engine.ledger.streamed_bytes
            engine.timeline = Timeline([Stretch("part", len(passes), len(passes))])
            with engine.request():
                for steps in passes:
                    assert torch.allclose(model(x, steps), twin(x, steps), atol=1e-6)
            return engine.ledger.streamed_bytes - before

        def bytes_of(*passes: Pass) -> int:
            return sum(sizes[group] for steps in passes for group, index in steps if index >= kept)

        yield SimpleNamespace(engine=engine, model=model, x=x, ask=ask, bytes_of=bytes_of, sizes=sizes)
        check(engine)
        engine.close()


orders = st.permutations(STEPS).flatmap(lambda steps: st.integers(0, len(steps)).map(lambda count: steps[:count]))


@settings(max_examples=40, deadline=None)
@given(orders, st.integers(1, 4), st.integers(0, 2), st.sampled_from([2, 3]))
def test_after_one_interval_each_layer_that_runs_is_copied_once_a_pass(
    steps: list[Step], passes: int, kept: int, slots: int
) -> None:
    with streaming(kept, slots) as it:
        for _ in range(2):
            it.ask(*[steps] * passes)
        assert it.ask(*[steps] * passes) == it.bytes_of(*[steps] * passes)
        assert it.ask(*[steps] * (passes + 2)) == it.bytes_of(*[steps] * (passes + 2))


@pytest.mark.parametrize("steps", [RUNS, WOVEN, NO_UP], ids=["listed otherwise", "groups in turn", "one never runs"])
def test_one_interval_is_enough_in_every_placement(steps: Pass) -> None:
    with streaming() as it:
        it.ask(steps)
        for kept, slots in ((0, 2), (1, 3), (2, 2), (0, 3)):
            it.engine.place(layerwise(dict.fromkeys(GROUPS, kept), slots=slots, policy="Leading"))
            streamed = [step for step in steps if step[1] >= kept]
            assert it.ask(steps, steps) == it.bytes_of(streamed, streamed)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.lists(st.sampled_from(STEPS), max_size=12), min_size=1, max_size=3), max_size=4),
    st.integers(0, 2),
    st.sampled_from([2, 3]),
    st.booleans(),
)
def test_any_passes_in_any_intervals_give_each_layer_its_own_weights_in_its_slots(
    intervals: list[list[list[Step]]], kept: int, slots: int, expected: bool
) -> None:
    with streaming(kept, slots) as it:
        held = it.engine.ledger.total(Tier.DEVICE)
        it.engine.observer = watch = Watch(it.engine)
        for passes in intervals:
            if expected:
                it.ask(*passes)  # compares outputs
            else:
                for steps in passes:
                    it.ask(steps)
        it.engine.observer = None
        streamed = sum(size for group, size in it.sizes.items() if GROUPS[group] > kept)
        assert watch.most <= held + slots * streamed


def test_a_layer_that_was_not_expected_disturbs_no_other_and_is_expected_next_time() -> None:
    with streaming() as it:
        it.ask(NO_UP)
        assert it.ask(RUNS) == it.bytes_of(RUNS)  # `up` has slots of its own: what was copied ahead stays
        assert it.ask(RUNS, RUNS) == it.bytes_of(RUNS, RUNS)


def test_entries_that_run_other_layers_are_learned_apart() -> None:
    with streaming() as it:
        for _ in range(3):
            before = it.engine.ledger.streamed_bytes
            it.engine.timeline = Timeline([Stretch("part", 1, 1), Stretch("part", 1, 1)])
            with it.engine.request():
                it.model.encode(it.x)
                it.model.decode(it.x)
            copied = it.engine.ledger.streamed_bytes - before
        assert copied == it.bytes_of(STEPS)


@pytest.mark.parametrize("inside", [True, False], ids=["in a request", "in a call of its own"])
@pytest.mark.parametrize("passes", [1, 3])
def test_a_pass_that_an_exception_ends_teaches_nothing(inside: bool, passes: int) -> None:
    with streaming() as it:
        it.ask(RUNS)
        it.engine.timeline = Timeline([Stretch("part", passes, passes)])
        with suppress(ValueError):
            if inside:
                with it.engine.request():
                    it.model(it.x, [*RUNS[4:], ("fail", 0)])
            else:
                it.model(it.x, [*RUNS[4:], ("fail", 0)])
        assert it.ask(RUNS, RUNS) == it.bytes_of(RUNS, RUNS)


def test_an_interrupt_teaches_nothing() -> None:
    """It is no `Exception`: hooks are not called for it."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with streaming() as it:
        it.ask(RUNS)
        handle = it.model.up[1].register_forward_pre_hook(interrupt)
        with suppress(KeyboardInterrupt), it.engine.request():
            it.model(it.x, RUNS)
        handle.remove()
        assert it.ask(RUNS, RUNS) == it.bytes_of(RUNS, RUNS)


def test_layers_that_a_rewrite_replaces_keep_their_place() -> None:
    with engine_of("streamed") as it:
        part = it.stacks["part"]
        part.order = [("first", 3), ("first", 1), ("first", 0), ("widen", 0), ("second", 2), ("second", 0)]
        part(it.x)
        with it.engine.rewriting():
            load(part)
        expected = part(it.x)
        sizes = {group.name: group.layer_bytes for group in it.engine.describe()[0].groups}
        loose = it.engine.describe()[0].loose_bytes
        for passes in (1, 2):
            it.engine.timeline = Timeline([Stretch("part", passes, passes)])
            before = it.engine.ledger.streamed_bytes
            with it.engine.request():
                assert all(torch.equal(part(it.x), expected) for _ in range(passes))
            layers = sum(sizes[group][index] for group, index in part.order if group != "widen")
            assert it.engine.ledger.streamed_bytes - before == loose + passes * layers


@pytest.mark.parametrize(
    ("passes", "order"),
    [
        (["ABCD"], "ABCD"),
        (["CDAB", "CDAB"], "CDAB"),
        (["ABCD", "A", "AD", "A"], "ABCD"),
        (["AD", "ABD", "ABCD"], "ABCD"),
        (["BCD", "ABCD"], "BCDA"),
        (["ABACAD", "ABACAD"], "ABCD"),
        (["AABBCC"], "ABC"),
        (["ABCD", "DCBA"], "ABCD"),
        ([""], ""),
    ],
    ids=[
        "one pass", "several", "some skip layers", "the first skips layers", "the first lacks the first layer",
        "one runs again and again", "each runs twice", "the other way round later", "none runs",
    ],
)  # fmt: skip
def test_what_an_interval_teaches(passes: list[str], order: str) -> None:
    with emulated_card() as card:
        loose, *layers = units_of([1] * 5, card, Ledger())
        units = KeyedUnits(loose, {"layers": layers})
        learned = RunningOrder()
        assert learned.of("forward", units) is None
        learned.begin("forward")
        for call in passes:
            for letter in call:
                learned.enter(layers["ABCD".index(letter)])
            learned.leave()
        learned.end(units)
        learned.enter(layers[2])  # a layer by itself, in no interval
        learned.end(units)
        assert learned.of("forward", units) == [layers["ABCD".index(letter)] for letter in order]
        assert learned.of("decode", units) is None
