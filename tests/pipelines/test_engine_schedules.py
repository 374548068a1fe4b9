"""RUNTIME 7 and 9, W1 and W2: layers out of order, skipped, again and broken off; copies late, early and ahead."""

from __future__ import annotations

import copy
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from pipelines.tiny_requests import (
    FOUR,
    PLACEMENTS,
    Tiny,
    ask,
    balances,
    calls_of,
    denoiser,
    layerwise,
    load,
    managed,
    modules,
    place_all,
    run,
    stack,
    stretches_of,
)
from pipelines.watched_card import WatchedCard
from stowplan_agent.weights import Timeline
from stowplan_api.placement import ComponentPlacement
from stowplan_api.record import Component

STREAMED = ["streamed", "half, leading", "half, forward, strided"]


@pytest.fixture(scope="module", params=FOUR)
def tiny(request: pytest.FixtureRequest, write_tiny: Callable[[str], Path]) -> Tiny:
    return load(write_tiny(request.param))


class Reordered(nn.ModuleList):
    """A stack that is iterated in another order than that of its names."""

    order: tuple[int, ...] = ()

    def __iter__(self) -> Iterator[nn.Module]:
        return iter([self[index] for index in self.order])


@pytest.fixture
def layers(tiny: Tiny) -> Iterator[Reordered]:
    found = stack(tiny.pipe)
    found.__class__ = Reordered
    found.order = tuple(range(len(found)))
    yield found
    found.__class__ = nn.ModuleList


def orders(count: int) -> dict[str, tuple[int, ...]]:
    straight = tuple(range(count))
    return {
        "backwards": straight[::-1],
        "skipped": straight[1::2],
        "one": (count - 2,),
        "again and at random": tuple(random.Random(1).choices(straight, k=count)),
    }


def test_runtime_7_layers_in_any_order_have_their_own_weights(tiny: Tiny, layers: Reordered) -> None:
    expected = {}
    for name, order in orders(len(layers)).items():
        layers.order = order
        expected[name] = run(tiny.pipe)
    assert len({output.sum().item() for output in expected.values()}) == len(expected)
    with managed(tiny.pipe) as (engine, _):
        for number, name in enumerate(expected):
            place_all(engine, PLACEMENTS[STREAMED[number % len(STREAMED)]])
            layers.order = orders(len(layers))[name]
            assert torch.equal(ask(tiny.pipe, engine), expected[name]), name
        layers.order = tuple(range(len(layers)))
        assert torch.equal(ask(tiny.pipe, engine), tiny.reference)


@pytest.mark.parametrize("tiny", ["tiny-flux", "tiny-qwen"], indirect=True)
@pytest.mark.parametrize("place", STREAMED[::2])
def test_runtime_7_after_an_exception_anywhere_the_next_request_is_right(tiny: Tiny, place: str) -> None:
    decoder, encoder = tiny.pipe.vae.decoder, tiny.pipe.text_encoder
    deep = [module for module in encoder.modules() if not next(module.children(), None)][-1]
    with managed(tiny.pipe) as (engine, _):
        place_all(engine, PLACEMENTS[place])
        at_rest = balances(engine)
        for module, error in ((stack(tiny.pipe)[2], ValueError), (decoder, KeyboardInterrupt), (deep, ValueError)):
            broken = breaking(error)
            handle = module.register_forward_pre_hook(broken)
            with pytest.raises(error, match="broken"):
                ask(tiny.pipe, engine)
            handle.remove()
            assert balances(engine) == at_rest
            if hasattr(tiny.pipe.vae, "clear_cache"):
                tiny.pipe.vae.clear_cache()  # features of earlier frames; `HostedPipeline` does this
            assert torch.equal(ask(tiny.pipe, engine), tiny.reference)


def breaking(error: type[BaseException]) -> Callable[..., None]:
    def hook(*_: object) -> None:
        raise error("broken")

    return hook


class Passes:
    """After each pass of one component: copies so far, and whether its last layer is still on the device."""

    def __init__(self, component: str, card: WatchedCard, last: nn.Module) -> None:
        self.component, self.card, self.last = component, card, last
        self.copies: list[int] = []
        self.held: list[bool] = []

    def __getattr__(self, event: str) -> Callable[..., None]:
        return lambda *where: self.note(event, *where)

    def note(self, event: str, component: str, *_: Any) -> None:
        if component == self.component and event == "component_awaited" and not self.copies:
            self.copies.append(len(self.card.copies))
        if component == self.component and event == "component_left":
            self.copies.append(len(self.card.copies))
            self.held.append(any(self.card.holds(parameter) for parameter in self.last.parameters()))


@pytest.mark.parametrize("slots", [2, 3])
@pytest.mark.parametrize("name", ["tiny-wan", "tiny-flux", "tiny-qwen"])
def test_runtime_9_after_a_pass_the_first_layers_of_the_next_are_on_their_way_and_the_last_is_gone(
    name: str, slots: int, write_tiny: Callable[[str], Path]
) -> None:
    pipe = load(write_tiny(name)).pipe
    calls = calls_of(pipe)
    with managed(pipe, card := WatchedCard()) as (engine, _):
        place_all(engine, layerwise(0.0, slots=slots))
        part = next(part for part in engine.describe() if part.name == "transformer")
        streamed = [nbytes for group in part.groups for nbytes in group.layer_bytes]
        engine.timeline = Timeline(stretches_of(calls))
        engine.observer = passes = Passes("transformer", card, stack(pipe)[-1])
        ask(pipe, engine)
        engine.observer = None
        start = passes.copies[0]
        count = calls.count("transformer")
        expected = [start + number * len(streamed) + slots for number in range(1, count)]
        assert passes.copies[1:] == [*expected, start + count * len(streamed)]  # none after the last pass
        assert not any(passes.held)
        for end in expected:
            assert [each.nbytes for each in card.copies[end - slots : end]] == streamed[:slots]


def dawdle(generator: random.Random, most: float) -> None:
    """The injected slowness itself, not synchronisation."""
    threading.Event().wait(generator.random() * most)


def with_slots(
    slots: int, place: Callable[[Component], ComponentPlacement]
) -> Callable[[Component], ComponentPlacement]:
    """Any number of slots: the contract offers two or three, the ring takes more."""

    def placed(part: Component) -> ComponentPlacement:
        entry = place(part)
        if not entry.groups:
            return entry
        groups = tuple(group.model_copy(update={"slots": slots}) for group in entry.groups)
        return entry.model_copy(update={"groups": groups})

    return placed


@pytest.mark.parametrize("name", ["tiny-sdxl"])
def test_w1_a_slow_link_and_random_compute_in_every_shape_of_ring(name: str, write_tiny: Callable[[str], Path]) -> None:
    pipe = load(write_tiny(name)).pipe
    generator = random.Random(2)
    reference = run(pipe, steps=3)
    handles = [module.register_forward_pre_hook(lambda *_: dawdle(generator, 1e-3)) for module in stack(pipe)]
    card = WatchedCard(pinned_rate=2e7, pageable_rate=1e7, delay=lambda: dawdle(generator, 5e-4))
    shapes = [
        (slots, policy, share) for slots in (2, 3, 4) for policy in ("Strided", "Leading") for share in (0.0, 0.5)
    ]
    with managed(pipe, card) as (engine, _):
        for slots, policy, share in shapes:
            place_all(engine, with_slots(slots, layerwise(share, policy=policy)))
            assert torch.equal(ask(pipe, engine, steps=3), reference), (slots, policy, share)
    assert len(shapes) == 12
    for handle in handles:
        handle.remove()


class Guarded(WatchedCard):
    """Refuses a copy that may begin before the compute that last read the bytes it overwrites."""

    def __init__(self) -> None:
        """Copies take no time at all."""
        super().__init__(pinned_rate=1e18, pageable_rate=1e18, latency=0.0)
        self.read_at: dict[int, float] = {}
        self.checked = 0

    def has_read(self, layer: nn.Module) -> None:
        for tensor in layer.parameters():
            self.read_at[tensor.data_ptr()] = self.clock.compute

    def copy(self, destination: torch.Tensor, source: torch.Tensor, *, pinned: bool, after: Any) -> Any:
        start, not_before = destination.data_ptr(), self.clock.compute if after is None else after.moment
        for address in [address for address in self.read_at if start <= address < start + source.nbytes]:
            self.checked += 1
            assert not_before >= self.read_at.pop(address), "a slot is refilled while its last layer still computes"
        return super().copy(destination, source, pinned=pinned, after=after)


def test_w2_no_slot_is_refilled_before_the_compute_that_read_it_in_five_hundred_random_schedules(
    write_tiny: Callable[[str], Path],
) -> None:
    pipe = load(write_tiny("tiny-qwen")).pipe
    heard: list[dict[str, Any]] = []
    handle = denoiser(pipe).register_forward_pre_hook(lambda _, args, kwargs: heard.append(kwargs), with_kwargs=True)
    run(pipe)
    handle.remove()
    inputs, generator, card = heard[-1], random.Random(4), Guarded()
    twin = copy.deepcopy(denoiser(pipe))
    ours, theirs = stack(pipe), twin.transformer_blocks
    for layer in ours:
        layer.register_forward_hook(lambda module, *_: card.has_read(module))
    ours.__class__ = theirs.__class__ = Reordered
    with managed(pipe, card) as (engine, _), torch.no_grad():
        assert modules(pipe)["transformer"] is denoiser(pipe)
        part = next(part for part in engine.describe() if part.name == "transformer")
        for number in range(500):
            if number % 50 == 0:
                slots, policy = generator.choice([2, 3]), generator.choice(["Strided", "Leading"])
                engine.place(layerwise(generator.choice([0.0, 0.5]), slots=slots, policy=policy)(part))
            ours.order = theirs.order = tuple(generator.choices(range(len(ours)), k=generator.randint(1, 4)))
            with engine.request():
                (output,) = denoiser(pipe)(**inputs)
            assert torch.equal(output, twin(**inputs)[0]), ours.order
    assert card.checked > 500
