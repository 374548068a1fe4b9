"""Modules and weights that change under management: like the same change to a resident twin, or not at all."""

from __future__ import annotations

import gc

import pytest
import torch
from torch import nn

from stowplan_agent.weights import AdoptionError, Timeline, WeightsEngine
from stowplan_agent.weights.ledger import Tier
from stowplan_agent.weights.timeline import Stretch
from unit.weights.stacks import (
    Stack,
    check,
    emulated_card,
    engine_of,
    layerwise,
    offload,
    resident,
)
from unit.weights.test_failures import ENTRIES
from unit.weights.tuners import Tuner, fuse, load, tuners, unload
from unit.weights.twins import STEPS, aligned_twin, ask, digest, sizes


@pytest.fixture
def x() -> torch.Tensor:
    return torch.rand(3, 16, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("name", ENTRIES)
def test_every_step_equals_a_resident_twins(name: str, committed: bool, x: torch.Tensor) -> None:
    twin, stack = aligned_twin(), Stack()
    with emulated_card() as card, torch.no_grad():
        engine = WeightsEngine(card)
        engine.adopt({"part": stack})
        engine.place(ENTRIES[name])
        if committed:
            engine.commit()
        bare = sizes(engine)
        for step, change in STEPS.items():
            change(twin)
            with engine.rewriting():
                change(stack)
            check(engine)
            assert torch.equal(ask(engine, stack, x), twin(x)), step
            assert digest(stack) == digest_but_passes(stack, twin), step
            assert (sizes(engine) == bare) is (not list(tuners(stack))), step
        assert engine.entry("part") == ENTRIES[name]
        for entry in ENTRIES.values():  # the host copies are those of the fused weights
            engine.place(entry)
            engine.commit()
            assert torch.equal(ask(engine, stack, x), twin(x))
        engine.close()


def digest_but_passes(stack: Stack, twin: Stack) -> str:
    """The twin's digest, once it has counted as many passes."""
    for own, other in zip(twin.buffers(), stack.buffers(), strict=True):
        own.copy_(other)
    return digest(twin)


@pytest.mark.parametrize("known", [False, True])
def test_w17_adapters_stream_with_their_layers_in_every_request(known: bool, x: torch.Tensor) -> None:
    twin = aligned_twin()
    with engine_of("streamed") as found, torch.no_grad():
        load(twin)
        with found.engine.rewriting():
            load(found.stacks["part"])
        found.engine.timeline = Timeline([Stretch("part", 2, 2)] if known else ())
        for _ in range(4):
            assert torch.equal(ask(found.engine, found.stacks["part"], x), twin(x))


def test_w12_placement_pins_and_hooks_stay(x: torch.Tensor) -> None:
    for name, entry in ENTRIES.items():
        with emulated_card() as card, torch.no_grad():
            stack, engine = Stack(), WeightsEngine(card)
            engine.adopt({"part": stack})
            engine.place(entry)
            ask(engine, stack, x)
            start = card.record()
            ask(engine, stack, x)
            before = card.elapsed(start, card.record())
            hooks = [(len(m._forward_pre_hooks), len(m._forward_hooks)) for m in (stack, *stack.first, *stack.second)]
            pinned = [unit.host is not None and unit.host.pinned for unit in engine._components["part"].units()]
            bare = sum(map(sum, sizes(engine)))
            with engine.rewriting():
                load(stack)
            now = [(len(m._forward_pre_hooks), len(m._forward_hooks)) for m in (stack, *stack.first, *stack.second)]
            assert now == hooks
            kept = [unit.host is not None and unit.host.pinned for unit in engine._components["part"].units()]
            if name != "resident":  # committed: whatever stays on the device has no host copy any more
                assert all(one or not other for one, other in zip(kept, pinned, strict=True) if other is not one)
                assert sum(kept) >= 1 or not any(pinned)
            ask(engine, stack, x)
            start = card.record()
            ask(engine, stack, x)
            grown = sum(map(sum, sizes(engine))) / bare
            assert card.elapsed(start, card.record()) <= before * grown * 1.05 + 1e-3, name
            engine.close()


def test_pinned_bytes_of_an_entry_follow_the_units_that_they_counted() -> None:
    with emulated_card() as card, torch.no_grad():
        stack, engine = Stack(), WeightsEngine(card)
        engine.adopt({"part": stack})
        (part,) = engine.describe()
        before = offload(pinned=part.total_bytes())
        engine.place(before)
        locked = engine.ledger.total(Tier.PINNED)
        with engine.rewriting():
            load(stack)
        (grown,) = engine.describe()
        assert engine.entry("part").pinned_bytes == (grown.total_bytes(),)
        assert engine.ledger.total(Tier.PINNED) == grown.total_bytes() > locked
        engine.place(engine.entry("part"))
        with engine.rewriting():
            unload(stack)
        assert engine.entry("part") == before
        assert engine.ledger.total(Tier.PINNED) == locked
        engine.close()


def test_an_adapter_that_cannot_be_managed_is_refused_and_gone() -> None:
    with engine_of("streamed") as found:
        stack = found.stacks["part"]
        with pytest.raises(AdoptionError, match=r"first\.1\.linear\.low .* meta"), found.engine.rewriting():
            load(stack)
            stack.first[1].linear.low = nn.Parameter(torch.empty(2, 16, device="meta"))
        assert not list(tuners(stack))


def test_hooks_follow_a_layer_that_is_wrapped_itself(x: torch.Tensor) -> None:
    """A group of plain linear layers: what runs after the base layer is in the layer still."""

    class Lines(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(3)
            self.lines = nn.ModuleList(nn.Linear(16, 16) for _ in range(6))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for line in self.lines:
                x = line(x)
            return x

    def wrap(lines: Lines) -> None:
        for index in range(6):
            lines.lines[index] = Tuner(lines.lines[index], 2, index)  # type: ignore[arg-type]

    twin, module = Lines(), Lines()
    with emulated_card() as card, torch.no_grad():
        engine = WeightsEngine(card)
        engine.adopt({"part": module})
        engine.place(layerwise({"lines": 0}))
        wrap(twin)
        with engine.rewriting():
            wrap(module)
        with engine.request():
            assert torch.equal(module(x), twin(x))
        bases = [line.base_layer for line in module.lines]
        assert not any(base._forward_pre_hooks or base._forward_hooks for base in bases)
        with engine.rewriting():
            for index in range(6):
                module.lines[index] = bases[index]
        with engine.request():
            assert torch.equal(module(x), Lines()(x))
        engine.close()
        assert not any(line._forward_pre_hooks or line._forward_hooks for line in module.lines)


def test_a_fused_adapter_that_is_switched_off_leaves_the_host_copy_too(x: torch.Tensor) -> None:
    """Left to the next pass it would leave the slot of a ring only."""
    twin = aligned_twin()
    with engine_of("streamed") as found, torch.no_grad():
        stack = found.stacks["part"]
        for change in (load, fuse):
            change(twin)
            with found.engine.rewriting():
                change(stack)
        for tuner in tuners(twin):
            tuner.disable_adapters = True
        with found.engine.rewriting():
            for tuner in tuners(stack):
                tuner.disable_adapters = True
        for _ in range(3):
            assert torch.equal(ask(found.engine, stack, x), twin(x))


def test_a_move_of_the_whole_component_inside_a_rewrite_moves_nothing_but_converts() -> None:
    with engine_of("half") as found:
        stack = found.stacks["part"]
        before = digest(stack)
        with found.engine.rewriting():
            stack.to(device="meta")
        assert digest(stack) == before
        with found.engine.rewriting():
            stack.to(torch.bfloat16)
        assert {tensor.dtype for tensor in stack.parameters()} == {torch.bfloat16}
        with found.engine.rewriting():
            stack.to("meta", torch.float32)
        found.expected = None


def test_adapters_that_are_taken_away_hold_no_memory_of_the_engine() -> None:
    with emulated_card() as card, torch.no_grad():
        stack, engine = Stack(), WeightsEngine(card)
        engine.adopt({"part": stack})
        engine.place(resident())
        engine.commit()
        with engine.rewriting():
            load(stack)
        gone = list(tuners(stack))
        bits = [tuner.low.clone() for tuner in gone]
        own = {
            unit.device.untyped_storage().data_ptr()
            for unit in engine._components["part"].units()
            if unit.device is not None
        }
        with engine.rewriting():
            unload(stack)
        gc.collect()
        assert all(torch.equal(tuner.low, low) for tuner, low in zip(gone, bits, strict=True))
        assert not own & {tuner.low.untyped_storage().data_ptr() for tuner in gone}
        check(engine)
        engine.close()


def test_layers_of_one_kind_are_few_moves() -> None:
    """A layer with several adapters goes to the device and back once."""

    class Wide(Stack):
        def __init__(self) -> None:
            super().__init__()
            for layer in self.first:
                layer.more = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))

    with emulated_card() as card, torch.no_grad():
        stack, engine = Wide(), WeightsEngine(card)
        engine.adopt({"part": stack})
        engine.place(layerwise({"first": 0, "second": 0}))
        with engine.rewriting():
            for layer in stack.first:
                for index in range(3):
                    layer.more[index] = Tuner(layer.more[index], 1, index)
        streamed = engine.ledger.streamed_bytes
        with engine.rewriting():
            fuse(stack)
        (part,) = engine.describe()
        assert engine.ledger.streamed_bytes - streamed == sum(part.groups[0].layer_bytes)
        engine.close()
