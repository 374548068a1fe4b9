"""After a start: host memory holds what the placement brings back and nothing else, and idle settings were told of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from starts import Start, settings_of, start
from stowplan_agent.weights.ledger import Tier
from stowplan_api.placement import ComponentPlacement, streamed_layers
from stowplan_api.record import Component


@pytest.fixture(scope="module")
def started(tiny_wan: Path) -> Iterator[Start]:
    shape = {"name": "clip", "width": 32, "height": 32, "frames": 5, "steps": 2, "weight": 3}
    ready = start(settings_of(tiny_wan, "40Mi", spec={"workload": {"shapes": [shape]}}))
    assert ready.phase == "Ready", ready.error
    yield ready
    ready.startup.close()


def coming_back(part: Component, entry: ComponentPlacement) -> int:
    """Bytes of a component that leave the device and come again: all that needs a host copy."""
    if entry.mode != "Layerwise":
        return 0 if entry.mode == "Resident" else part.total_bytes()
    layers = {group.name: group.layer_bytes for group in part.groups}
    nbytes = part.loose_bytes if entry.loose_lifetime == "Forward" else 0
    for group in entry.groups or ():
        sizes = layers[group.name]
        streamed = streamed_layers(len(sizes), group.resident_layers, group.policy)
        nbytes += sum(sizes) if group.lifetime == "Forward" else sum(sizes[index] for index in streamed)
    return nbytes


def test_runtime_16_host_copies_that_nothing_needs_are_given_back(started: Start) -> None:
    session = started.startup.prepared.session
    ledger = session.engine.ledger
    entries = {entry.name: entry for entry in session.placement().components}
    parts = session.engine.describe()
    assert {entry.mode for entry in entries.values()} != {"Offload"}  # something is kept, or nothing is shown
    for part in parts:
        held = ledger.held(part.name, Tier.PINNED) + ledger.held(part.name, Tier.PAGEABLE)
        assert held == coming_back(part, entries[part.name]), part.name
    given_back = sum(part.total_bytes() for part in parts) - ledger.total(Tier.PINNED) - ledger.total(Tier.PAGEABLE)
    assert given_back > 0
    session.check()


def test_the_status_says_how_long_each_component_stays(started: Start) -> None:
    entries = {entry.name: entry for entry in started.startup.prepared.session.placement().components}
    for part in started.status.components:
        entry = entries[part.name]
        if entry.mode == "Layerwise":
            wanted = {group.lifetime for group in entry.groups or () if group.resident_layers}
            assert set(part.lifetime.split("+")) == (wanted or {entry.loose_lifetime or "Permanent"})
        else:
            assert part.lifetime == ("Permanent" if entry.mode == "Resident" else "Forward")


def test_settings_without_effect_are_said_with_the_placement(started: Start) -> None:
    applied = started.condition("Applied")
    assert (applied.status, applied.reason) == ("True", "PlanApplied")
    assert applied.message.endswith("; the weight of shape clip (3) has no effect: it is the only shape")
