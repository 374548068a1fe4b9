"""The seed placement with locked host copies: never more than may be locked, the same device bytes, streams first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stowplan_agent.lifecycle.seed import pinned_share, with_pins
from stowplan_agent.planning import seed_placement
from stowplan_api.placement import ComponentPlacement, GroupPlacement
from stowplan_api.record import Component, Fixed, Group

DENOISER = Component(name="denoiser", loose_bytes=10, groups=(Group(name="blocks", layer_bytes=(100,) * 6),))
ENCODER = Component(name="encoder", loose_bytes=30, groups=(Group(name="layers", layer_bytes=(50,) * 4),))
VAE = Component(name="vae", loose_bytes=40)
STUCK = Component(name="stuck", loose_bytes=70, fixed=Fixed(mode="Offload", reason="quantised"))
PARTS = (VAE, ENCODER, DENOISER, STUCK)


def locked(entry: ComponentPlacement, part: Component) -> int:
    layers = {group.name: group.layer_bytes for group in part.groups}
    streams = (
        sum(layers[placed.name][placed.resident_layers :][: max(placed.pinned_layers or (0,))])
        for placed in entry.groups or ()
    )
    return sum(streams) + max(entry.pinned_bytes or (0,))


@given(pinnable=st.integers(0, 2000), host=st.integers(0, 2000))
def test_never_more_than_may_be_locked_and_nothing_else_changes(pinnable: int, host: int) -> None:
    seed = seed_placement(PARTS, ranks=1, host_bytes=host)
    found = with_pins(seed, PARTS, pinnable)
    known = {part.name: part for part in PARTS}
    assert sum(locked(entry, known[entry.name]) for entry in found.components) <= pinnable
    for before, after in zip(seed.components, found.components, strict=True):
        plain = {"pinned_bytes": before.pinned_bytes, "groups": before.groups}
        assert after.model_copy(update=plain) == before
        for old, new in zip(before.groups or (), after.groups or (), strict=True):
            assert new.model_copy(update={"pinned_layers": old.pinned_layers}) == old


def test_all_of_it_where_there_is_room_but_for_what_is_fixed() -> None:
    found = with_pins(seed_placement(PARTS, ranks=1), PARTS, 10_000)
    known = {part.name: part for part in PARTS}
    assert {entry.name: locked(entry, known[entry.name]) for entry in found.components} == {
        "vae": 40,
        "encoder": 200,
        "denoiser": 600,
        "stuck": 0,
    }


def test_layers_that_stream_come_before_what_visits_and_in_running_order() -> None:
    found = {entry.name: entry for entry in with_pins(seed_placement(PARTS, ranks=1), PARTS, 480).components}
    assert locked(found["encoder"], ENCODER) == 200
    assert locked(found["denoiser"], DENOISER) == 200  # two layers of six
    assert locked(found["vae"], VAE) == 40
    assert pinned_share(found["denoiser"], DENOISER) == 2 / 6
    assert pinned_share(found["vae"], VAE) == 0.0


def test_the_share_counts_streamed_layers_alone() -> None:
    group = GroupPlacement(name="blocks", resident_layers=2, pinned_layers=(6,), lifetime="Forward")
    assert pinned_share(ComponentPlacement(name="denoiser", mode="Layerwise", groups=(group,)), DENOISER) == 1.0
