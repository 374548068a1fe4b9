"""The placement before anything is measured: least on the device, unless the host has no room for the rest."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan_agent.planning import seed_placement
from stowplan_api.placement import ComponentPlacement, Placement, streamed_layers
from stowplan_api.record import Component, Fixed, Group


@st.composite
def components(draw: st.DrawFn) -> tuple[Component, ...]:
    def groups() -> tuple[Group, ...]:
        layers = st.lists(st.integers(1, 20), min_size=1, max_size=6)
        return tuple(Group(name=f"group{i}", layer_bytes=tuple(draw(layers))) for i in range(draw(st.integers(0, 2))))

    return tuple(
        Component(name=f"part{index}", loose_bytes=draw(st.integers(0, 50)), groups=groups())
        for index in range(draw(st.integers(1, 4)))
    )


def permanent(part: Component, entry: ComponentPlacement) -> int:
    """Bytes of a component that are on the device for good."""
    if entry.mode == "Resident":
        return part.total_bytes()
    kept = 0
    for group, placed in zip(part.groups, entry.groups or (), strict=False):
        if placed.lifetime == "Permanent":
            streamed = streamed_layers(len(group.layer_bytes), placed.resident_layers, placed.policy)
            kept += sum(size for index, size in enumerate(group.layer_bytes) if index not in streamed)
    return kept


def on_host(parts: tuple[Component, ...], placement: Placement) -> int:
    entries = {entry.name: entry for entry in placement.components}
    return sum(part.total_bytes() - permanent(part, entries[part.name]) for part in parts)


@settings(max_examples=200, deadline=None)
@given(components(), st.integers(0, 700))
def test_the_host_holds_no_more_than_it_has_and_the_device_little_more_than_that_takes(
    parts: tuple[Component, ...], room: int
) -> None:
    placement = seed_placement(parts, 1, host_bytes=room)
    assert [entry.name for entry in placement.components] == [part.name for part in parts]
    assert on_host(parts, placement) <= room
    excess = max(0, sum(part.total_bytes() for part in parts) - room)
    kept = sum(part.total_bytes() for part in parts) - on_host(parts, placement)
    coarsest = max(part.total_bytes() for part in parts)
    assert kept == 0 if not excess else kept < excess + coarsest


@given(components())
def test_a_host_with_room_for_all_is_as_good_as_one_without_a_limit(parts: tuple[Component, ...]) -> None:
    total = sum(part.total_bytes() for part in parts)
    assert seed_placement(parts, 2, host_bytes=total) == seed_placement(parts, 2)


def test_layers_stay_before_components_that_have_none_and_fixed_ones_keep_their_mode() -> None:
    vae = Component(name="vae", loose_bytes=40)
    denoiser = Component(name="transformer", loose_bytes=10, groups=(Group(name="blocks", layer_bytes=(10,) * 8),))
    fixed = Component(name="encoder", loose_bytes=30, fixed=Fixed(mode="Offload", reason="asked for"))
    placement = seed_placement((vae, denoiser, fixed), 1, host_bytes=160 - 35)
    modes = {entry.name: entry.mode for entry in placement.components}
    assert modes == {"vae": "Offload", "transformer": "Layerwise", "encoder": "Offload"}
    (group,) = placement.components[1].groups or ()
    assert (group.resident_layers, group.lifetime) == (4, "Permanent")
    placement = seed_placement((vae, denoiser, fixed), 1, host_bytes=30)
    assert [entry.mode for entry in placement.components] == ["Resident", "Resident", "Offload"]
