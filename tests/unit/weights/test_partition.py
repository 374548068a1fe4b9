"""RUNTIME 8: streamed and resident layers partition the stack for every n <= 64 and r, and so do a unit's roles."""

from __future__ import annotations

from itertools import pairwise

import pytest

from stowplan_agent.weights.entry import roles_of
from stowplan_agent.weights.ledger import Ledger
from stowplan_api.placement import Policy, sharded_layers, streamed_layers
from unit.weights.stacks import emulated_card, layerwise, units_of

POLICIES: tuple[Policy, ...] = ("Strided", "Leading")
EVERY = [(layers, resident) for layers in range(65) for resident in range(layers + 1)]


@pytest.mark.parametrize("policy", POLICIES)
def test_runtime_8_streamed_layers_are_as_many_as_are_not_resident_each_once_in_running_order(policy: Policy) -> None:
    for layers, resident in EVERY:
        streamed = streamed_layers(layers, resident, policy)
        assert len(streamed) == layers - resident
        assert all(left < right for left, right in pairwise(streamed))
        assert set(streamed) <= set(range(layers))


def test_runtime_8_the_policies_agree_where_nothing_and_where_everything_is_resident() -> None:
    for layers in range(65):
        for resident, expected in ((0, tuple(range(layers))), (layers, ())):
            assert {streamed_layers(layers, resident, policy) for policy in POLICIES} == {expected}


def test_runtime_8_leading_keeps_the_first_layers_and_strided_spreads_the_copies() -> None:
    for layers, resident in EVERY:
        assert streamed_layers(layers, resident, "Leading") == tuple(range(resident, layers))
        streamed = streamed_layers(layers, resident, "Strided")
        # Layers from one copy to the next, the pass's end joined to the next one's beginning.
        gaps = [right - left for left, right in pairwise((*streamed, *(index + layers for index in streamed[:1])))]
        assert not gaps or max(gaps) - min(gaps) <= 1, (layers, resident)


@pytest.mark.parametrize("policy", POLICIES)
def test_sharded_layers_come_out_of_those_that_are_not_streamed_and_leave_the_resident_ones(policy: Policy) -> None:
    for layers in range(17):
        for resident in range(layers + 1):
            assert sharded_layers(layers, resident, 0, policy) == ()
            for sharded in range(layers - resident + 1):
                chosen = sharded_layers(layers, resident, sharded, policy)
                assert len(chosen) == sharded and all(left < right for left, right in pairwise(chosen))
                assert not set(chosen) & set(streamed_layers(layers, resident + sharded, policy))
            everything = sharded_layers(layers, resident, layers - resident, policy)
            assert everything == streamed_layers(layers, resident, policy)


def test_sharded_layers_are_spread_between_the_streamed_ones_or_come_after_the_first() -> None:
    assert sharded_layers(8, 2, 2, "Strided") == (2, 6)
    assert sharded_layers(8, 2, 2, "Leading") == (2, 3)


@pytest.mark.parametrize("resident", [-1, 5])
def test_runtime_8_a_count_out_of_range_is_refused_with_the_range(resident: int) -> None:
    with pytest.raises(ValueError, match=f"{resident} resident layers of a group of 4; give 0 to 4"):
        streamed_layers(4, resident, "Strided")


@pytest.mark.parametrize("policy", POLICIES)
def test_runtime_8_each_layer_plays_one_part_in_every_placement_of_a_stack(policy: Policy) -> None:
    """What the engine makes of it: a layer is in the ring or held, never both, and none is forgotten."""
    with emulated_card() as card:
        loose, *layers = units_of([1] * 13, card, Ledger())
        for resident in range(len(layers) + 1):
            for lifetime in ("Permanent", "Forward"):
                entry = layerwise({"only": resident}, lifetime=lifetime, policy=policy)
                roles = roles_of(entry, loose, {"only": layers}, 0)
                ((ring, _),) = roles.rings
                held = [unit for unit in (*roles.permanent, *roles.visiting) if unit is not loose]
                assert [*ring] == [layers[index] for index in streamed_layers(len(layers), resident, policy)]
                assert len(held) == resident and {*ring, *held} == {*layers}
