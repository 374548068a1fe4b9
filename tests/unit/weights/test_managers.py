"""One module has one name, one engine, one mover; and is an ordinary module again when it is dropped."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from stowplan_agent.weights import AdoptionError, RewriteError, WeightsEngine
from stowplan_agent.weights.ledger import Tier
from stowplan_api.placement import ComponentPlacement
from unit.weights.stacks import Stack, balances, check, emulated_card, layerwise, offload, resident


def test_a_module_under_two_names_is_managed_once() -> None:
    with emulated_card() as card:
        stack, engine = Stack(), WeightsEngine(card)
        engine.adopt({"one": stack, "two": stack})
        engine.adopt({"three": stack})
        assert [component.name for component in engine.describe()] == ["one"]
        assert len(stack._forward_pre_hooks) == 1


def test_a_name_that_another_module_has_is_refused() -> None:
    with emulated_card() as card:
        one, two, engine = Stack(), Stack(), WeightsEngine(card)
        engine.adopt({"part": one})
        with pytest.raises(AdoptionError, match="component part is another module than the one of that name"):
            engine.adopt({"part": two})
        assert not two._forward_pre_hooks


def test_a_module_of_another_engine_is_refused_until_that_one_lets_go() -> None:
    for let_go in (lambda engine: engine.drop(["part"]), WeightsEngine.close):
        with emulated_card() as card:
            stack, first, second = Stack(), WeightsEngine(card), WeightsEngine(card)
            first.adopt({"part": stack})
            with pytest.raises(AdoptionError, match="component other is managed by another engine"):
                second.adopt({"other": stack})
            assert second.describe() == ()
            let_go(first)
            second.adopt({"other": stack})
            assert len(stack._forward_pre_hooks) == 1


@pytest.mark.parametrize("entry", [offload(), offload(pinned=4000), resident(), layerwise({"first": 2, "second": 0})])
def test_a_dropped_component_is_an_ordinary_module_and_nobodys_memory(entry: ComponentPlacement) -> None:
    with emulated_card() as card, torch.no_grad():
        one, two, x = Stack(), Stack(), torch.rand(2, 16)
        expected, engine = one(x), WeightsEngine(card)
        engine.adopt({"part": one, "other": two})
        held = engine.ledger.held("other", Tier.PAGEABLE)
        engine.place(entry)
        engine.drop(["part"])
        check(engine)
        assert balances(engine.ledger) == {"device": 0, "pinned": 0, "pageable": held}
        assert not one._forward_pre_hooks and "encode" not in vars(one)
        memory = weakref.ref(one.tokens.untyped_storage())
        assert torch.equal(one(x), expected)
        with engine.request():
            assert torch.equal(two(x), expected)
        with pytest.raises(KeyError):
            engine.drop(["part"])
        del one
        gc.collect()
        assert memory() is None, "the host copy goes with the module"
        engine.close()


def test_an_unknown_name_drops_nothing() -> None:
    with emulated_card() as card:
        engine = WeightsEngine(card)
        engine.adopt({"part": Stack()})
        with pytest.raises(KeyError):
            engine.drop(["part", "nobody"])
        assert [component.name for component in engine.describe()] == ["part"]


def test_a_closed_engine_takes_nothing_on_and_leaves_others_alone() -> None:
    with emulated_card() as card, torch.no_grad():
        stack, first, second = Stack(), WeightsEngine(card), WeightsEngine(card)
        first.adopt({"part": stack})
        first.close()
        second.adopt({"part": stack})
        first.close()
        for attempt in (lambda: first.adopt({"other": Stack()}), lambda: first.drop(["part"])):
            with pytest.raises(RuntimeError, match="the engine is closed; make another one"):
                attempt()
        with pytest.raises(RuntimeError, match="closed"), first.rewriting():
            raise AssertionError("nothing is rewritten")
        with pytest.raises(AdoptionError, match="managed by another engine"):
            WeightsEngine(card).adopt({"part": stack})


def test_an_engine_that_is_forgotten_is_no_free_module_as_long_as_its_hooks_are_there() -> None:
    with emulated_card() as card:
        stack = Stack()
        WeightsEngine(card).adopt({"part": stack})
        gc.collect()
        with pytest.raises(AdoptionError, match="managed by another engine"):
            WeightsEngine(card).adopt({"part": stack})


def test_nothing_is_adopted_within_a_rewrite() -> None:
    with emulated_card() as card:
        engine = WeightsEngine(card)
        engine.adopt({"part": Stack()})
        with pytest.raises(RewriteError, match="being rewritten"), engine.rewriting():
            engine.adopt({"other": Stack()})
