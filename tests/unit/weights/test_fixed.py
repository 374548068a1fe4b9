"""RUNTIME 5: what cannot be packed is put on the device once, with the reason, and never moved or rebuilt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from stowplan_agent.weights import EntryError, WeightsEngine
from stowplan_agent.weights.ledger import Tier
from stowplan_api.record import Fixed
from unit.weights.stacks import Stack, check, emulated_card, layerwise, offload, resident


class Foreign(torch.Tensor):
    """A tensor class of someone else."""


def foreign(stack: Stack) -> None:
    stack.tokens = nn.Parameter(stack.tokens.data.as_subclass(Foreign), requires_grad=False)
    stack.tokens.note = "kept"


def sparse(stack: Stack) -> None:
    stack.unused = nn.Parameter(torch.eye(3).to_sparse(), requires_grad=False)


def whole(stack: Stack) -> None:
    stack.compile(backend="eager")


def block_by_block(stack: Stack) -> None:
    for layer in stack.first:
        layer.compile(backend="eager")


def upcast(stack: Stack) -> None:
    stack.spare = nn.Parameter(torch.zeros(4, dtype=torch.float16))
    stack.config = type("Config", (), {"force_upcast": True})()


REASONS: dict[Callable[[Stack], None], str] = {
    foreign: r"tokens is a Foreign \(torch.strided\), which cannot be packed",
    sparse: r"unused is a Parameter \(torch.sparse_coo\), which cannot be packed",
    whole: r"it was compiled together with what calls it",
    block_by_block: r"first.0 was compiled together with what calls it",
    upcast: r"its pipeline converts it from float16 to float32 and back in every request",
}


@pytest.mark.parametrize("spoil", REASONS)
def test_w13_what_cannot_be_packed_is_fixed_with_its_reason(spoil: Callable[[Stack], None]) -> None:
    with emulated_card() as card, torch.no_grad():
        stack, other, x = Stack(), Stack(), torch.rand(2, 16)
        expected = stack(x)
        spoil(stack)
        tokens, pointers = stack.tokens, [parameter.data_ptr() for parameter in other.parameters()]
        engine = WeightsEngine(card)
        engine.adopt({"part": stack, "other": other})
        described = {part.name: part for part in engine.describe()}
        fixed = described["part"].fixed
        assert isinstance(fixed, Fixed) and fixed.mode == "Resident"
        assert pytest.approx(described["other"].total_bytes(), rel=0.7) == described["part"].total_bytes()
        assert described["other"].fixed is None
        assert engine.ledger.held("part", Tier.DEVICE) == described["part"].total_bytes() > 0
        for entry in (offload(), layerwise({"first": 0, "second": 0})):
            with pytest.raises(EntryError, match=f"component part can only be Resident, not .*: {REASONS[spoil]}"):
                engine.place(entry)
        for entry in (resident(), resident(name="other"), offload(name="other")):
            engine.place(entry)
            with engine.request():
                assert torch.equal(stack(x), expected) and torch.equal(other(x), expected)
            check(engine)
        assert stack.tokens is tokens and getattr(tokens, "note", "kept") == "kept"
        assert [parameter.data_ptr() for parameter in other.parameters()] != pointers
        engine.drop(["part"])
        check(engine)
        engine.close()


def test_a_fixed_component_that_is_larger_than_the_device_says_so() -> None:
    with emulated_card(capacity=1000) as card:
        stack, engine = Stack(), WeightsEngine(card)
        foreign(stack)
        with pytest.raises(torch.OutOfMemoryError):
            engine.adopt({"part": stack})
        assert engine.describe() == () and card.counters().weights == 0


def test_h13_a_component_that_refuses_to_move_is_named() -> None:
    class Stubborn(Stack):
        def to(self, *_: object, **__: object) -> None:
            raise ValueError("`.to` is not supported for quantised models")

    with emulated_card() as card:
        stack, engine = Stubborn(), WeightsEngine(card)
        foreign(stack)
        message = "component part cannot be put on the device .*not supported.*: tokens is a Foreign .*plain tensors"
        with pytest.raises(EntryError, match=message):
            engine.adopt({"part": stack})
        assert engine.describe() == () and card.counters().weights == 0


def test_conversions_that_were_put_off_are_made_before_it_moves() -> None:
    with emulated_card() as card, torch.no_grad():
        stack, wide = Stack(), torch.rand(16)
        foreign(stack)
        stack.late = nn.Parameter(torch.zeros(16, dtype=torch.bfloat16))
        late = stack.late.untyped_storage()._cdata
        engine = WeightsEngine(card)
        engine.adopt({"part": stack}, converted_from=lambda storage: wide if storage._cdata == late else None)
        assert torch.equal(stack.late, wide.bfloat16())
        engine.close()


class Pair(torch.Tensor):
    """A tensor class that wraps another tensor and has no memory of its own."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Pair:
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner: torch.Tensor) -> None:
        self.inner = inner

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["inner"], None

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func is torch.ops.aten.detach.default, f"{func} was not expected"
        return Pair(args[0].inner)


@pytest.mark.parametrize("wrap", [lambda inner: inner.as_subclass(Foreign), Pair])
def test_so_are_those_under_foreign_classes_of_tensors(wrap: Callable[[torch.Tensor], torch.Tensor]) -> None:
    with emulated_card() as card, torch.no_grad():
        stack, wide, late = Stack(), torch.rand(16), torch.zeros(16, dtype=torch.bfloat16)
        key = late.untyped_storage()._cdata
        stack.late = nn.Parameter(wrap(late), requires_grad=False)
        stack.to = lambda device: stack  # host and device are one here
        engine = WeightsEngine(card)
        engine.adopt({"part": stack}, converted_from=lambda storage: wide if storage._cdata == key else None)
        assert torch.equal(late, wide.bfloat16())
        engine.close()


def test_a_rewrite_that_fails_leaves_fixed_modules_as_they_were() -> None:
    with emulated_card() as card, torch.no_grad():
        stack, engine = Stack(), WeightsEngine(card)
        foreign(stack)
        engine.adopt({"part": stack})
        before = dict(stack.named_parameters())
        with pytest.raises(ZeroDivisionError), engine.rewriting():
            stack.first[0].adapter = nn.Linear(3, 3)
            _ = 1 / 0
        after = dict(stack.named_parameters())
        assert before.keys() == after.keys() and all(before[name] is after[name] for name in before)
        engine.close()


def test_what_a_rewrite_adds_to_a_fixed_component_is_counted_and_goes_again() -> None:
    with emulated_card() as card, torch.no_grad():
        stack, engine = Stack(), WeightsEngine(card)
        foreign(stack)
        engine.adopt({"part": stack})
        before = engine.ledger.held("part", Tier.DEVICE)
        with engine.rewriting():
            stack.first[0].adapter = nn.Linear(8, 8, bias=False)
        assert engine.ledger.held("part", Tier.DEVICE) == before + 256 == engine.describe()[0].total_bytes()
        check(engine)
        with engine.rewriting():
            del stack.first[0].adapter
        assert engine.ledger.held("part", Tier.DEVICE) == before
        check(engine)
        engine.close()


def test_an_adapter_that_the_device_has_no_room_for_is_taken_back() -> None:
    with emulated_card() as card, torch.no_grad():
        first, second, engine = Stack(), Stack(), WeightsEngine(card)
        foreign(first), foreign(second)
        engine.adopt({"first": first, "second": second})
        held = dict(engine.ledger._balances)
        card.hold((1 << 30) - card.counters().allocated - 256)
        with pytest.raises(torch.OutOfMemoryError), engine.rewriting():
            first.adapter = nn.Linear(8, 8, bias=False)
            second.adapter = nn.Linear(8, 8, bias=False)
        assert not hasattr(first, "adapter") and not hasattr(second, "adapter")
        assert dict(engine.ledger._balances) == held
        card.let_go((1 << 30) - sum(held.values()) - 256)
        check(engine)
        engine.close()
