"""Real pipelines under the engine: the same bits in every placement and after any sequence of them (RUNTIME.md, 1)."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from pipelines.tiny_requests import (
    NAMES,
    PLACEMENTS,
    Tiny,
    ask,
    balances,
    calls_of,
    layerwise,
    load,
    managed,
    modules,
    place_all,
    resident,
    run,
    stretches_of,
)
from stowplan_agent.accelerators.emulated import EmulatedAccelerator, EmulatedCard
from stowplan_agent.weights import Timeline
from stowplan_agent.weights.ledger import Tier


@pytest.fixture(scope="module", params=NAMES)
def tiny(request: pytest.FixtureRequest, write_tiny: Callable[[str], Path]) -> Tiny:
    return load(write_tiny(request.param))


def test_same_bits_in_every_placement_with_and_without_an_expected_timeline(tiny: Tiny) -> None:
    """RUNTIME 1, and W16 for the placements that stream everything."""
    stretches = stretches_of(calls_of(tiny.pipe))
    with managed(tiny.pipe) as (engine, _):
        for number, (name, place) in enumerate(PLACEMENTS.items()):
            if number % 2 and "transformer_2" in modules(tiny.pipe):
                continue  # two experts take twice as long, and differ only in their timeline
            place_all(engine, place)
            engine.timeline = Timeline(stretches if number % 4 < 2 else ())
            assert torch.equal(ask(tiny.pipe, engine), tiny.reference), name
            if number % 3 == 0:
                engine.commit()


@pytest.mark.parametrize("name", ["tiny-wan", "tiny-wan-two-experts", "tiny-flux"])
def test_an_expected_request_copies_nothing_after_its_last_use(name: str, write_tiny: Callable[[str], Path]) -> None:
    tiny = load(write_tiny(name))
    calls = calls_of(tiny.pipe)
    with managed(tiny.pipe) as (engine, _):
        place_all(engine, layerwise(0.0))
        engine.timeline = Timeline(stretches_of(calls))
        before = engine.ledger.streamed_bytes
        ask(tiny.pipe, engine)
        expected = sum(
            calls.count(part.name) * sum(sum(group.layer_bytes) for group in part.groups)
            if part.groups
            else part.total_bytes()
            for part in engine.describe()
        )
        assert engine.ledger.streamed_bytes - before == expected


@pytest.mark.parametrize("seed", range(2))
def test_any_sequence_of_placements_ends_in_the_state_of_the_last(tiny: Tiny, seed: int) -> None:
    """RUNTIME 17."""
    generator = random.Random(seed)
    names = generator.choices(list(PLACEMENTS), k=4)
    with managed(tiny.pipe) as (engine, _):
        for name in names:
            for part in generator.sample(engine.describe(), len(engine.describe())):
                engine.place(PLACEMENTS[name](part))
            if generator.random() < 0.5:
                engine.commit()
        engine.commit()
        once = balances(engine)
        place_all(engine, PLACEMENTS[names[-1]])
        engine.commit()
        assert balances(engine) == once  # applying it twice changes nothing
        assert torch.equal(ask(tiny.pipe, engine), tiny.reference)
        assert balances(engine) == once
    with managed(tiny.pipe) as (engine, _):
        place_all(engine, PLACEMENTS[names[-1]])
        engine.commit()
        assert balances(engine) == once


def test_slow_copies_and_slow_compute_change_no_bit(tiny: Tiny) -> None:
    """RUNTIME 10 on real pipelines; the fuzz with random schedules is tests/engine_fuzz.py."""
    generator = random.Random(3)

    def delay() -> None:
        time.sleep(generator.random() * 1e-3)  # the injected slowness itself, not synchronisation

    with managed(tiny.pipe, EmulatedAccelerator(EmulatedCard(1 << 30), delay=delay)) as (engine, _):
        for place in (layerwise(0.0, lifetime="Forward"), layerwise(0.5, slots=3, policy="Leading")):
            place_all(engine, place)
            assert torch.equal(ask(tiny.pipe, engine), tiny.reference)


def test_a_round_trip_leaves_the_pipeline_as_it_was(tiny: Tiny) -> None:
    """T1: no hook, the original methods, the device bytes of the start, and the same bits without the engine."""
    before = hooks_of(tiny.pipe)  # transformers leaves some of its own with the first request
    with managed(tiny.pipe) as (engine, card):
        for name in ("resident", "streamed", "offload", "resident"):
            place_all(engine, PLACEMENTS[name])
            engine.commit()
            if name == "resident":
                assert card.counters().weights == sum(part.total_bytes() for part in engine.describe())
    for part in modules(tiny.pipe).values():
        for module in part.modules():
            assert not {"forward", "encode", "decode", "generate"} & vars(module).keys()
    assert hooks_of(tiny.pipe) == before
    assert torch.equal(run(tiny.pipe), tiny.reference)


def hooks_of(pipe: Any) -> list[Any]:
    every = [module for part in modules(pipe).values() for module in part.modules()]
    return [hook for each in every for hook in (*each._forward_hooks.values(), *each._forward_pre_hooks.values())]


def test_every_device_byte_that_is_left_has_an_owner(tiny: Tiny) -> None:
    """T7: after demoting all, what is left on the device is what the entries say, component by component."""
    with managed(tiny.pipe) as (engine, card):
        place_all(engine, resident)
        engine.commit()
        assert engine.ledger.total(Tier.PAGEABLE) == engine.ledger.total(Tier.PINNED) == 0
        place_all(engine, layerwise(0.0))
        ask(tiny.pipe, engine)
        for part in engine.describe():
            assert engine.ledger.held(part.name, Tier.DEVICE) == (part.loose_bytes if part.groups else 0)
        assert card.counters().weights == engine.ledger.total(Tier.DEVICE)
        assert card.counters().peak > card.counters().weights
