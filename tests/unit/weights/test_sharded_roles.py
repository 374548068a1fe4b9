"""Three places for a layer: which units have which role, and refusals by name where there can be no shards."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan_agent.weights.entry import EntryError, check_entry, roles_of
from stowplan_agent.weights.ledger import Ledger
from stowplan_api.placement import Policy
from unit.weights.stacks import emulated_card, layerwise, units_of


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 9), st.integers(0, 9), st.integers(0, 9), st.sampled_from(["Strided", "Leading"]))
def test_three_places_partition_a_group_and_all_that_passes_through_slots_is_in_running_order(
    layers: int, resident: int, sharded: int, policy: Policy
) -> None:
    resident = min(resident, layers)
    sharded = min(sharded, layers - resident)
    with emulated_card() as card:
        loose, *units = units_of([1] * (layers + 1), card, Ledger())
        streamed = layers - resident - sharded
        entry = layerwise({"only": resident}, sharded=sharded, policy=policy, pinned=min(1, streamed))
        check_entry(entry, {"only": layers}, 0, 0, shards=True)
        roles = roles_of(entry, loose, {"only": units}, 0)
        ((ring, _),) = roles.rings
        assert list(ring) == [unit for unit in units if unit in ring]
        assert set(roles.sharded) <= set(ring) and len(roles.sharded) == sharded and len(ring) == streamed + sharded
        assert set(roles.permanent) == {loose, *units} - set(ring)
        assert roles.pinned <= set(ring) - set(roles.sharded) and len(roles.pinned) == min(1, streamed)


@pytest.mark.parametrize(
    ("group", "shards", "message"),
    [
        (layerwise({"first": 2}, sharded=1), False, "needs several ranks with peer access; leave it out"),
        (layerwise({"first": 2}, sharded=1, lifetime="Forward"), True, "and the lifetime is Forward; give Permanent"),
        (layerwise({"first": 2}, sharded=4), True, "4 shardedLayers beside 2 residentLayers of 5 layers; give 0 to 3"),
        (layerwise({"first": 2}, sharded=3, pinned=1), True, "pinnedLayers of rank 0 is 1; at most 0 keep a host copy"),
    ],
)
def test_shards_that_a_group_cannot_have_are_refused_in_one_sentence(group: object, shards: bool, message: str) -> None:
    with pytest.raises(EntryError, match=f"component part, group first: .*{message}"):
        check_entry(group, {"first": 5}, 1000, 0, shards=shards)  # type: ignore[arg-type]


def test_no_sharded_layers_need_no_other_ranks() -> None:
    check_entry(layerwise({"first": 2}, sharded=0), {"first": 5}, 1000, 0)
