"""The engine while a model runs: exceptions, odd orders, nested components, autograd modes, and hooks off again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from stowplan_agent.weights import Timeline, WeightsEngine
from stowplan_agent.weights.ledger import Tier
from stowplan_agent.weights.timeline import Stretch
from unit.weights.stacks import PLACEMENTS, Stack, check, emulated_card, engine_of


def left_over(engine: WeightsEngine, at_rest: int) -> None:
    check(engine)
    assert engine.ledger.total(Tier.DEVICE) == at_rest


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_calls_in_and_outside_requests_give_the_same_bits(placement: str) -> None:
    with engine_of(placement) as it:
        part = it.stacks["part"]
        at_rest = it.engine.ledger.total(Tier.DEVICE)
        for _ in range(2):
            assert torch.equal(part(it.x), it.expected)
            assert torch.equal(part.encode(it.x), it.expected * 2)
            with it.engine.request():
                assert torch.equal(part.encode(it.x), it.expected * 2)
            left_over(it.engine, at_rest)


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.enable_grad])
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_autograd_modes_neither_reach_the_weights_nor_the_bits(placement: str, mode: type) -> None:
    with engine_of(placement) as it:
        part = it.stacks["part"]
        for _ in range(2):
            with mode(), it.engine.request():
                assert torch.equal(part(it.x), it.expected)
        assert not any(tensor.is_inference() for tensor in [*part.parameters(), *part.buffers()])
        assert part.first[0].passes.item() == 3  # once before adoption


ORDERS = {
    "backwards": [("second", 3), ("second", 1), ("second", 0)],
    "again": [("second", 2), ("second", 2), ("second", 2), ("second", 3)],
    "one": [("second", 1)],
    "random": [("second", index) for index in (3, 0, 0, 2, 1, 3, 2, 0, 1)],
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_layers_in_any_order(placement: str, order: str) -> None:
    with engine_of(placement) as it:
        part = it.stacks["part"]
        it.engine.timeline = Timeline([Stretch("part", 3, 3)])
        usual, part.order = part.order, [("first", 1), ("widen", 0), *ORDERS[order]]
        twin = Stack()
        twin.order = part.order
        with it.engine.request():
            assert torch.equal(part(it.x), twin(it.x))
            part.order = usual
            assert torch.equal(part(it.x), it.expected)
            assert torch.equal(part(it.x), it.expected)


def test_a_layer_inside_itself_keeps_its_weights_to_the_end() -> None:
    with engine_of("streamed") as it:
        layer = it.stacks["part"].first[1]
        inner = layer.forward
        layer.forward = lambda x, deep=True: inner(layer(x, False)) if deep else inner(x)
        twin = Stack()
        original = twin.first[1].forward
        twin.first[1].forward = lambda x: original(original(x))
        with it.engine.request():
            assert torch.equal(it.stacks["part"](it.x), twin(it.x))


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_after_an_exception_anywhere_the_next_request_is_right(placement: str, error: type[BaseException]) -> None:
    with engine_of(placement) as it:
        part = it.stacks["part"]
        at_rest = it.engine.ledger.total(Tier.DEVICE)
        for name, index in (("first", 0), ("first", 4), ("second", 2)):
            layer = getattr(part, name)[index]
            layer.forward = broken(error)
            with pytest.raises(error), it.engine.request():
                part.encode(it.x)
            left_over(it.engine, at_rest)
            del layer.forward
            with it.engine.request():
                assert torch.equal(part(it.x), it.expected)


def broken(error: type[BaseException]) -> Callable[..., Any]:
    def forward(*_: object) -> None:
        raise error("broken")

    return forward


def test_an_exception_that_the_model_itself_survives() -> None:
    with engine_of("streamed") as it:
        part = it.stacks["part"]
        part.first[2].linear.forward = broken(ValueError)
        with it.engine.request():
            with pytest.raises(ValueError, match="broken"):
                part(it.x)
            del part.first[2].linear.forward
            assert torch.equal(part(it.x), it.expected)


def test_no_room_for_a_visitor_fails_the_call_and_the_next_one_works() -> None:
    with engine_of("offload") as it:
        room = it.card.capacity_bytes() - 4096
        buffer = it.card.allocate(room)
        with pytest.raises(torch.OutOfMemoryError), it.engine.request():
            it.stacks["part"](it.x)
        assert it.engine.ledger.total(Tier.DEVICE) == 0
        it.card.free(buffer)
        with it.engine.request():
            assert torch.equal(it.stacks["part"](it.x), it.expected)


def test_a_component_that_calls_another_has_both_at_once() -> None:
    with engine_of("streamed", "outer", "inner") as it:
        outer, inner = it.stacks["outer"], it.stacks["inner"]
        layer = outer.first[2]
        plain = layer.forward
        layer.forward = lambda x: plain(x) + inner.encode(it.x).sum()
        with it.engine.request():
            first, second = outer(it.x), outer(it.x)
            assert torch.equal(inner(it.x), it.expected)
        assert torch.equal(first, second) and not torch.equal(first, it.expected)


def test_closing_takes_off_every_hook_and_leaves_the_weights_valid() -> None:
    with engine_of("half") as it:
        part = it.stacks["part"]
        it.engine.close()
        for module in part.modules():
            assert not module._forward_hooks and not module._forward_pre_hooks
            assert "encode" not in vars(module) and "forward" not in vars(module)
        assert torch.equal(part(it.x), it.expected)
        assert it.engine.ledger.total(Tier.PINNED) == 0


def test_someone_elses_wrapper_is_back_after_closing() -> None:
    with emulated_card() as card:
        stack, engine = Stack(), WeightsEngine(card)
        theirs = stack.encode = lambda x: x
        engine.adopt({"part": stack})
        assert stack.encode is not theirs
        engine.close()
        assert stack.encode is theirs


def test_a_list_that_the_model_writes_into_is_the_callers_own() -> None:
    with engine_of("streamed") as it:
        part = it.stacks["part"]
        cache: list[torch.Tensor] = [it.x]
        plain = part.forward
        part.forward = lambda x, seen: (seen.append(x), plain(x))[1]
        part(it.x, cache)
        assert len(cache) == 2
