"""What must move: by subtraction, and nothing when nothing differs."""

from __future__ import annotations

import pytest

from stowplan_agent.transaction import difference
from stowplan_api.placement import ComponentPlacement, Placement


def placement(**modes: str) -> Placement:
    return Placement.model_validate({"components": [{"name": name, "mode": mode} for name, mode in modes.items()]})


def test_only_what_differs_moves_in_the_targets_order() -> None:
    moves = difference(
        placement(text="Offload", denoiser="Offload", vae="Resident"),
        placement(vae="Offload", denoiser="Offload", text="Resident"),
    )
    assert [(move.component, move.from_.mode if move.from_ else None, move.to.mode) for move in moves] == [
        ("vae", "Resident", "Offload"),
        ("text", "Offload", "Resident"),
    ]


def test_a_placement_against_itself_moves_nothing() -> None:
    same = placement(text="Offload", vae="Resident")
    assert difference(same, same) == ()


def test_the_way_back_is_the_way_there_turned_round() -> None:
    here, there = placement(a="Offload", b="Resident"), placement(a="Resident", b="Resident")
    (move,) = difference(here, there)
    (back,) = difference(there, here)
    assert (back.from_, back.to) == (move.to, move.from_)


@pytest.mark.parametrize(
    ("current", "target", "sentence"),
    [
        (placement(a="Offload", b="Offload"), placement(a="Offload"), "the target has no entry for component b"),
        (placement(a="Offload"), placement(a="Offload", b="Offload"), "the current placement has no entry"),
    ],
)
def test_a_placement_names_every_component(current: Placement, target: Placement, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        difference(current, target)


def test_pins_and_lifetimes_are_differences_too() -> None:
    here = Placement(components=(ComponentPlacement(name="a", mode="Offload", pinned_bytes=(1,)),))
    there = Placement(components=(ComponentPlacement(name="a", mode="Offload", pinned_bytes=(2,)),))
    assert len(difference(here, there)) == 1
