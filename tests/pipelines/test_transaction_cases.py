"""Cases T1, T2, T4, T7 and T8 of the weights: what a change of placement must leave behind, whatever it found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from pipelines.tiny_requests import PLACEMENTS, Tiny, ask, balances, load, managed, modules, run
from stowplan_agent.accelerators.emulated import EmulatedAccelerator, EmulatedCard
from stowplan_agent.pipeline import HostedPipeline
from stowplan_agent.planning import seed_placement
from stowplan_agent.transaction import ApplyError, apply, difference
from stowplan_agent.weights import AdoptionError, EntryError, WeightsEngine
from stowplan_agent.weights.ledger import Tier
from stowplan_api.placement import ComponentPlacement, Placement

UNEXPLAINED = 64 << 10
"""Bytes that a pipeline itself may keep between requests: a scheduler's tables, the last latents' shape."""


@pytest.fixture(scope="module")
def tiny(tiny_wan: Path) -> Tiny:
    return load(tiny_wan)


def now(engine: WeightsEngine) -> Placement:
    return Placement(components=tuple(engine.entry(part.name) for part in engine.describe()))


def go(engine: WeightsEngine, name: str) -> None:
    target = Placement(components=tuple(PLACEMENTS[name](part) for part in engine.describe()))
    apply(engine, difference(now(engine), target), check=engine.check)
    engine.commit()


def hooks_of(pipe: Any) -> list[Any]:
    every = [module for part in modules(pipe).values() for module in part.modules()]
    return [hook for each in every for hook in (*each._forward_hooks.values(), *each._forward_pre_hooks.values())]


def test_t1_there_and_back_leaves_no_trace(tiny: Tiny) -> None:
    bare = hooks_of(tiny.pipe)
    with managed(tiny.pipe) as (engine, card):
        go(engine, "resident")
        hooks, held, weights = hooks_of(tiny.pipe), balances(engine), card.counters().weights
        for name in ("streamed", "offload", "resident"):
            go(engine, name)
            assert torch.equal(ask(tiny.pipe, engine), tiny.reference)
        assert (hooks_of(tiny.pipe), balances(engine), card.counters().weights) == (hooks, held, weights)
        assert engine.ledger.total(Tier.PAGEABLE) == engine.ledger.total(Tier.PINNED) == 0
    assert hooks_of(tiny.pipe) == bare
    for part in modules(tiny.pipe).values():
        assert not [m for m in part.modules() if {"forward", "encode", "decode", "generate"} & vars(m).keys()]
    assert torch.equal(run(tiny.pipe), tiny.reference)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_t2_a_model_larger_than_the_device_is_never_on_it(tiny_wan: Path, dtype: str) -> None:
    """The card has room for the seed placement, to the byte."""
    card = EmulatedAccelerator(EmulatedCard(1 << 30))
    hosted = HostedPipeline.load(tiny_wan, dtype, card.device)
    engine = WeightsEngine(card)
    engine.adopt(
        hosted.modules(), lambda parts: seed_placement(parts, ranks=1), converted_from=hosted.deferred.source_of
    )
    seed, total = engine.ledger.total(Tier.DEVICE), sum(part.total_bytes() for part in engine.describe())
    assert card.counters().peak == seed < total
    engine.close()
    card.close()

    outside = 1 << 20
    small = EmulatedAccelerator(EmulatedCard(seed + outside, outside_bytes=outside))
    hosted = HostedPipeline.load(tiny_wan, dtype, small.device)
    engine = WeightsEngine(small)
    engine.adopt(
        hosted.modules(), lambda parts: seed_placement(parts, ranks=1), converted_from=hosted.deferred.source_of
    )
    assert small.counters().peak == seed
    for part in hosted.modules().values():
        kept = getattr(part, "_keep_in_fp32_modules", None) or []
        for name, tensor in part.named_parameters():
            silent = tensor.dtype == torch.float32 != getattr(torch, dtype)
            assert not silent or any(one in name for one in kept), name
    engine.close()
    small.close()


def on_the_cpu(pipe: Any) -> None:
    pipe.to("cpu")


def half_moved(pipe: Any) -> None:
    """One component somewhere else in memory, one layer of another as well."""
    for tensor in [*pipe.vae.parameters(), *pipe.transformer.blocks[0].parameters()]:
        tensor.data = tensor.data.clone()


def under_inference(pipe: Any) -> None:
    with torch.inference_mode(False):
        pipe.transformer.eval()


@pytest.mark.parametrize("hand_over", [on_the_cpu, half_moved, under_inference])
def test_t4_however_a_pipeline_is_handed_over_it_ends_the_same(
    tiny_wan: Path, hand_over: Callable[[Any], None]
) -> None:
    """On a GPU, from the device and half on it: tests/gpu."""
    tiny = load(tiny_wan)
    hand_over(tiny.pipe)
    with managed(tiny.pipe) as (engine, card):
        go(engine, "half, forward, strided")
        assert card.counters().weights == engine.ledger.total(Tier.DEVICE)
        assert balances(engine) == expected_balances(tiny_wan)
        assert torch.equal(ask(tiny.pipe, engine), tiny.reference)


def expected_balances(folder: Path) -> dict[tuple[str, str], int]:
    with managed(load(folder).pipe) as (engine, _):
        go(engine, "half, forward, strided")
        return balances(engine)


def test_t4_another_mover_of_weights_is_refused_by_name(tiny_wan: Path) -> None:
    tiny = load(tiny_wan)
    tiny.pipe.transformer.enable_group_offload(
        onload_device=torch.device("cpu"), offload_device=torch.device("cpu"), offload_type="leaf_level"
    )
    card = EmulatedAccelerator(EmulatedCard(1 << 30))
    engine = WeightsEngine(card)
    with pytest.raises(AdoptionError, match=r"component transformer: .* carries a hook of another mover of weights"):
        engine.adopt(modules(tiny.pipe))
    assert engine.describe() == ()
    assert card.counters().weights == 0
    engine.close()
    card.close()


@pytest.fixture
def mixed(tiny: Tiny) -> Iterator[WeightsEngine]:
    with managed(tiny.pipe) as (engine, _):
        go(engine, "half, leading")
        yield engine


def test_t7_after_demoting_all_each_device_byte_has_an_owner(tiny: Tiny, mixed: WeightsEngine) -> None:
    go(mixed, "offload")
    ask(tiny.pipe, mixed)
    counters = mixed.accelerator.counters()
    assert counters.weights == mixed.ledger.total(Tier.DEVICE) == 0
    assert counters.allocated < UNEXPLAINED


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"residentLayers": 99}, "99 residentLayers of 8 layers; give 0 to 8"),
        ({"pinnedLayers": [9]}, "pinnedLayers of rank 0 is 9; at most 4 keep a host copy"),
        ({"name": "heads"}, "the entry has groups heads; the component has blocks"),
    ],
)
def test_t8_a_set_that_a_component_cannot_have_is_refused_by_name(
    tiny: Tiny, mixed: WeightsEngine, wrong: dict[str, Any], message: str
) -> None:
    before, held = now(mixed), balances(mixed)
    group = {"name": "blocks", "residentLayers": 4, "pinnedLayers": [0]} | wrong
    entry = ComponentPlacement.model_validate({"name": "transformer", "mode": "Layerwise", "groups": [group]})
    target = before.model_copy(
        update={"components": tuple(entry if one.name == entry.name else one for one in before.components)}
    )
    with pytest.raises(ApplyError, match="component transformer") as caught:
        apply(mixed, difference(before, target), check=mixed.check)
    assert isinstance(caught.value.cause, EntryError)
    assert message in str(caught.value)
    assert (now(mixed), balances(mixed)) == (before, held)
    assert torch.equal(ask(tiny.pipe, mixed), tiny.reference)


def test_t8_a_component_that_the_pipeline_lacks_is_refused_by_name(mixed: WeightsEngine) -> None:
    before = now(mixed)
    more = Placement(components=(*before.components, ComponentPlacement(name="upscaler", mode="Resident")))
    with pytest.raises(ValueError, match="the current placement has no entry for component upscaler"):
        difference(before, more)
