"""What an entry means in units: the same bytes as the plan's, and refusals by name for what it cannot have."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan_agent.planning.layout import layout_of
from stowplan_agent.planning.problems import entry_problems
from stowplan_agent.weights.entry import EntryError, check_entry, roles_of
from stowplan_agent.weights.ledger import Ledger
from stowplan_api.placement import ComponentPlacement, GroupPlacement
from stowplan_api.record import Component, Group
from unit.weights.stacks import emulated_card, layerwise, offload, units_of

LAYERS = {"first": 5, "second": 4}


def of(units: object) -> int:
    return sum(unit.nbytes for unit in units)


groups = st.tuples(
    *(
        st.builds(
            GroupPlacement,
            name=st.just(name),
            residentLayers=st.integers(0, layers + 1),
            policy=st.sampled_from(["Strided", "Leading"]),
            lifetime=st.sampled_from(["Permanent", "Forward"]),
            slots=st.integers(2, 3),
            pinnedLayers=st.tuples(st.integers(0, layers + 1)),
        )
        for name, layers in LAYERS.items()
    )
)
entries = st.one_of(
    st.builds(ComponentPlacement, name=st.just("part"), mode=st.just("Resident")),
    st.builds(
        ComponentPlacement,
        name=st.just("part"),
        mode=st.just("Offload"),
        prefetch=st.sampled_from([None, True]),
        pinnedBytes=st.one_of(st.none(), st.tuples(st.integers(0, 9000))),
    ),
    st.builds(
        ComponentPlacement,
        name=st.just("part"),
        mode=st.just("Layerwise"),
        looseLifetime=st.sampled_from([None, "Permanent", "Forward"]),
        groups=groups,
    ),
)


@settings(max_examples=200, deadline=None)
@given(entries, st.lists(st.integers(1, 4), min_size=10, max_size=10))
def test_units_hold_the_bytes_that_the_plan_charges(entry: ComponentPlacement, sizes: list[int]) -> None:
    with emulated_card() as card:
        loose, *rest = units_of(sizes, card, Ledger())
        units = {"first": rest[:5], "second": rest[5:]}
        component = Component(
            name="part",
            loose_bytes=loose.nbytes,
            groups=tuple(
                Group(name=name, layer_bytes=tuple(unit.nbytes for unit in layers)) for name, layers in units.items()
            ),
        )
        problems = entry_problems(component, entry, 1)
        if problems:
            with pytest.raises(EntryError, match="component part"):
                check_entry(entry, LAYERS, component.total_bytes(), 0)
            return
        check_entry(entry, LAYERS, component.total_bytes(), 0)
        roles, layout = roles_of(entry, loose, units, 0), layout_of(component, entry, 1)
        slots = sum(count * max((unit.nbytes for unit in ring), default=0) for ring, count in roles.rings)
        streamed = [unit for ring, _ in roles.rings for unit in ring]
        assert of(roles.permanent) == layout.always
        assert of(roles.visiting) + slots == layout.own
        assert of(roles.visiting) + of(streamed) == layout.host[0]
        assert sorted(map(id, [*roles.permanent, *roles.visiting, *streamed])) == sorted(map(id, [loose, *rest]))
        if entry.mode == "Offload":  # whole units are pinned: never more than the share, less by less than a unit
            assert layout.locked[0] - max(unit.nbytes for unit in [loose, *rest]) < of(roles.pinned) <= layout.locked[0]
        else:
            assert of(roles.pinned) == layout.locked[0]


@pytest.mark.parametrize(
    ("entry", "rank", "message"),
    [
        (layerwise({"first": 1}), 0, "component part: the entry has groups first; the component has first, second"),
        (layerwise({"first": 1, "second": 1, "third": 1}), 0, "has groups first, second, third; the component has"),
        (layerwise({"first": 6, "second": 0}), 0, "group first: 6 residentLayers of 5 layers; give 0 to 5"),
        (layerwise({"first": 2, "second": 4}, pinned=1), 0, "group second: pinnedLayers of rank 0 is 1; at most 0"),
        (layerwise({"first": 2, "second": 1}), 1, "group first: pinnedLayers has 1 numbers; rank 1 needs one"),
        (offload(pinned=1001), 0, "component part: pinnedBytes of rank 0 is 1001; at most 1000"),
        (offload(), 1, "component part: pinnedBytes has 1 numbers; rank 1 needs one"),
    ],
)
def test_what_a_component_cannot_have_is_refused_by_name(entry: ComponentPlacement, rank: int, message: str) -> None:
    with pytest.raises(EntryError, match=message):
        check_entry(entry, LAYERS, 1000, rank)


def test_a_component_without_layers_cannot_be_layerwise() -> None:
    with pytest.raises(EntryError, match="the component has no groups of layers"):
        check_entry(layerwise({"blocks": 0}), {}, 1000, 0)


def test_empty_layers_take_no_part_in_a_ring() -> None:
    with emulated_card() as card:
        loose, empty, full = units_of([1, 0, 2], card, Ledger())
        roles = roles_of(layerwise({"only": 0}), loose, {"only": [empty, full]}, 0)
        assert roles.rings == (((full,), 2),)
