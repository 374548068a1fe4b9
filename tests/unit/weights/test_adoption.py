"""Which tensor belongs to which unit, and what is refused by name before anything is changed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from stowplan_agent.weights import AdoptionError, WeightsEngine
from stowplan_agent.weights.adoption import Survey, survey
from unit.weights.stacks import Layer, Stack, balances, check, emulated_card, layerwise, resident

PACKED = 256


def loose_names(found: Survey) -> set[str]:
    return {place.name for block in found.loose for place in block.places}


def layer_names(found: Survey, group: str) -> list[set[str]]:
    return [{place.name for block in layer for place in block.places} for layer in found.groups[group]]


def test_layers_hold_their_parameters_and_buffers_are_loose() -> None:
    found = survey("part", Stack())
    assert loose_names(found) == {"tokens", "weight", "bias", "passes", "table"}
    assert layer_names(found, "first") == [{"scale", "weight", "bias"}] * 5
    assert layer_names(found, "second") == [{"scale", "weight", "bias"}] * 4


def test_every_storage_is_counted_once() -> None:
    with emulated_card() as card:
        stack, engine = Stack(), WeightsEngine(card)
        engine.adopt({"part": stack})
        (component,) = engine.describe()
        wide = 2 * 16
        layer = lambda width: 2 * PACKED + -(-width * width * 4 // PACKED) * PACKED  # noqa: E731
        assert [group.layer_bytes for group in component.groups] == [(layer(16),) * 5, (layer(wide),) * 4]
        assert component.loose_bytes == PACKED * (1 + 9 + 1 + 1) + wide * 16 * 4  # tokens, 9 counters, bias, table
        assert balances(engine.ledger) == {"device": 0, "pinned": 0, "pageable": component.total_bytes()}


def tie_weight(stack: Stack) -> None:
    stack.first[3].linear.weight = stack.first[1].linear.weight


def tie_across_edge(stack: Stack) -> None:
    stack.tokens = stack.first[2].scale


def share_module(stack: Stack) -> None:
    stack.first[4].linear = stack.first[0].linear


def share_outside(stack: Stack) -> None:
    stack.final = stack.first[2].linear


def overlap(stack: Stack) -> None:
    whole = torch.rand(24)
    stack.first[0].scale, stack.first[1].scale = nn.Parameter(whole[:16]), nn.Parameter(whole[8:])


@pytest.mark.parametrize(
    ("tie", "missing"),
    [
        (tie_weight, {1: {"weight"}, 3: {"weight"}}),
        (tie_across_edge, {2: {"scale"}}),
        (share_outside, {2: {"weight", "bias"}}),
        (overlap, {0: {"scale"}, 1: {"scale"}}),
    ],
)
def test_what_is_used_by_more_than_one_layer_is_loose(
    tie: Callable[[Stack], None], missing: dict[int, set[str]]
) -> None:
    stack, x = Stack(), torch.rand(2, 16)
    tie(stack)
    with torch.no_grad():
        expected = stack(x)
    found = survey("part", stack)
    for index, names in enumerate(layer_names(found, "first")):
        assert names == {"scale", "weight", "bias"} - missing.get(index, set())
    with emulated_card() as card, torch.no_grad():
        engine = WeightsEngine(card)
        engine.adopt({"part": stack})
        for entry in (layerwise({"first": 0, "second": 1}), resident(), layerwise({"first": 2, "second": 0})):
            engine.place(entry)
            with engine.request():
                assert torch.equal(stack(x), expected)
            check(engine)


def test_layers_that_share_a_child_are_no_stack() -> None:
    stack, x = Stack(), torch.rand(2, 16)
    share_module(stack)
    with emulated_card() as card, torch.no_grad():
        expected = stack(x)
        engine = WeightsEngine(card)
        engine.adopt({"part": stack})
        assert [group.name for group in engine.describe()[0].groups] == ["second"]
        engine.place(layerwise({"second": 0}))
        with engine.request():
            assert torch.equal(stack(x), expected)


def test_layers_that_appear_twice_in_a_stack_are_streamed_like_others() -> None:
    """A model that runs four layers twice over: the group has four, each called twice a pass."""
    stack, x = Stack(first=4), torch.rand(2, 16)
    stack.first.extend(list(stack.first))
    stack.order = [("first", index) for index in range(8)] + stack.order[4:]
    with torch.no_grad():
        expected = stack(x)
    assert layer_names(survey("part", stack), "first") == [{"scale", "weight", "bias"}] * 4
    with emulated_card() as card, torch.no_grad():
        engine = WeightsEngine(card)
        engine.adopt({"part": stack})
        engine.place(layerwise({"first": 1, "second": 0}))
        with engine.request():
            assert torch.equal(stack(x), expected)


def test_layers_that_are_all_tied_have_nothing_to_stream() -> None:
    stack, x = Stack(), torch.rand(2, 16)
    for layer in stack.first[1:]:
        layer.scale, layer.linear = stack.first[0].scale, stack.first[0].linear
    stack.first[0].extra = stack.first[1].extra = nn.Parameter(torch.rand(3))
    with torch.no_grad():
        expected = stack(x)
    with emulated_card() as card, torch.no_grad():
        engine = WeightsEngine(card)
        engine.adopt({"part": stack})
        engine.place(layerwise({group.name: 0 for group in engine.describe()[0].groups}))
        with engine.request():
            assert torch.equal(stack(x), expected)


class Tagged(nn.Parameter):
    """A subclass with an attribute of its own."""


def test_a_subclass_of_parameter_keeps_its_identity_and_its_attribute() -> None:
    stack, x = Stack(), torch.rand(2, 16)
    tagged = Tagged(torch.rand(16, 16))
    tagged.tag = "kept"
    stack.first[1].linear.weight = tagged
    with emulated_card() as card, torch.no_grad():
        expected = stack(x)
        engine = WeightsEngine(card)
        engine.adopt({"part": stack})
        engine.place(layerwise({"first": 0, "second": 0}))
        with engine.request():
            assert torch.equal(stack(x), expected)
        assert stack.first[1].linear.weight is tagged
        assert type(tagged) is Tagged and tagged.tag == "kept"


def meta(stack: Stack) -> None:
    stack.widen.to("meta")


def inference(stack: Stack) -> None:
    with torch.inference_mode():
        stack.widen = nn.Linear(16, 32)


def accelerate(stack: Stack) -> None:
    stack.first[2]._hf_hook = object()


def group_offload(stack: Stack) -> None:
    stack.widen._diffusers_hook = type("Registry", (), {"hooks": {"group_offloading": object()}})()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (meta, "component other: tensor widen.weight was left on the meta device"),
        (inference, "component other: tensor widen.weight was made in inference mode"),
        (accelerate, r"component other: first.2 carries a hook of another mover of weights \(accelerate\)"),
        (group_offload, r"component other: widen carries a hook .*\(group_offloading\)"),
    ],
)
def test_what_cannot_be_managed_is_refused_by_name_and_nothing_is_changed(
    spoil: Callable[[Stack], None], message: str
) -> None:
    with emulated_card() as card:
        good, bad, engine = Stack(), Stack(), WeightsEngine(card)
        spoil(bad)
        before = good.tokens.data_ptr()
        with pytest.raises(AdoptionError, match=message):
            engine.adopt({"good": good, "other": bad})
        assert engine.describe() == () and good.tokens.data_ptr() == before
        assert balances(engine.ledger) == {"device": 0, "pinned": 0, "pageable": 0}
        assert not good._forward_pre_hooks and "encode" not in vars(good)


def test_an_empty_registry_of_diffusers_is_no_mover() -> None:
    stack = Stack()
    stack._diffusers_hook = type("Registry", (), {"hooks": {}})()
    survey("part", stack)


def test_two_components_with_one_tensor_are_refused() -> None:
    with emulated_card() as card:
        one, two = Stack(), Stack()
        two.first[2].linear.weight = one.first[2].linear.weight
        engine = WeightsEngine(card)
        with pytest.raises(AdoptionError, match=r"components one and two share a tensor \(first.2.linear.weight\)"):
            engine.adopt({"one": one, "two": two})
        engine.adopt({"one": one})
        with pytest.raises(AdoptionError, match="components one and two share a tensor"):
            engine.adopt({"two": two})
        assert [component.name for component in engine.describe()] == ["one"]


def test_a_list_of_too_few_layers_is_loose() -> None:
    assert survey("part", Stack(first=3)).groups.keys() == {"second"}
    assert isinstance(Stack().first[0], Layer)
