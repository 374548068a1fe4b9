"""RUNTIME.md 17: any sequence of placements ends in the state of the last good one, whatever failed on the way.

The state depends on where everything is and not on how it came there: bits, hooks, and every byte on the ledger are
those of a pipeline that went straight to the last placement. Applying a placement again does no operation at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from faults.drills import digest, hooked
from pipelines.tiny_requests import PLACEMENTS, Tiny, ask, balances, load, managed, modules, place_all
from stowplan_agent.accelerators.announced import announce
from stowplan_agent.transaction import ApplyError, Point, Points, apply, difference
from stowplan_agent.weights import WeightsEngine
from stowplan_api.placement import ComponentPlacement, GroupPlacement, Placement
from stowplan_api.record import Component, Group

KINDS = ("allocate", "copy", "wait", "record", "read_back", "pin", "unpin", "arena", "counters")


@dataclass(frozen=True)
class Step:
    """A placement to go to, where that fails if it does, and whether what is reached is committed."""

    target: Placement
    fault: Point | None
    commit: bool


@dataclass(frozen=True)
class Managed:
    tiny: Tiny
    engine: WeightsEngine
    hooks: list[Any]
    bits: dict[str, str]

    def now(self) -> Placement:
        return Placement(components=tuple(self.engine.entry(part.name) for part in self.engine.describe()))

    def go(self, target: Placement, fault: Point | None = None) -> Points:
        points = Points(() if fault is None else (fault,))
        with points.within("apply"):
            apply(self.engine, difference(self.now(), target), check=self.engine.check)
        return points

    def there(self) -> list[Any]:
        return [hook for part in modules(self.tiny.pipe).values() for hook in hooked(part)]

    def digests(self) -> dict[str, str]:
        return {name: digest(part) for name, part in modules(self.tiny.pipe).items()}


@pytest.fixture(scope="module")
def wan(tiny_wan: Path) -> Iterator[Managed]:
    tiny = load(tiny_wan)
    with managed(tiny.pipe) as (engine, card):
        announce(card)
        parts = modules(tiny.pipe)
        hooks = [hook for part in parts.values() for hook in hooked(part)]
        yield Managed(tiny, engine, hooks, {name: digest(part) for name, part in parts.items()})


@st.composite
def group(draw: st.DrawFn, of: Group) -> GroupPlacement:
    layers = len(of.layer_bytes)
    kept, lifetime = draw(st.integers(0, layers)), draw(st.sampled_from(["Permanent", "Forward"]))
    keeping = layers if lifetime == "Forward" else layers - kept
    return GroupPlacement(
        name=of.name,
        resident_layers=kept,
        policy=draw(st.sampled_from(["Strided", "Leading"])),
        lifetime=lifetime,
        slots=draw(st.integers(2, 3)),
        pinned_layers=(draw(st.integers(0, keeping)),),
    )


@st.composite
def entry(draw: st.DrawFn, of: Component) -> ComponentPlacement:
    mode = draw(st.sampled_from(["Resident", "Offload", "Layerwise"] if of.groups else ["Resident", "Offload"]))
    if mode == "Resident":
        return ComponentPlacement(name=of.name, mode=mode)
    if mode == "Offload":
        pinned = draw(st.sampled_from([0, of.total_bytes() // 2, of.total_bytes()]))
        prefetch = draw(st.sampled_from([None, True]))
        return ComponentPlacement(name=of.name, mode=mode, pinned_bytes=(pinned,), prefetch=prefetch)
    groups = tuple(draw(group(one)) for one in of.groups)
    loose = draw(st.sampled_from(["Permanent", "Forward"]))
    return ComponentPlacement(name=of.name, mode=mode, loose_lifetime=loose, groups=groups)


@st.composite
def step(draw: st.DrawFn, parts: tuple[Component, ...]) -> Step:
    target = Placement(components=tuple(draw(entry(part)) for part in parts))
    fault = st.builds(Point, st.just("apply"), st.sampled_from(KINDS), st.integers(1, 12))
    return Step(target, draw(st.none() | fault), draw(st.booleans()))


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_sequence_ends_in_the_state_of_the_last_good_placement(wan: Managed, data: st.DataObject) -> None:
    engine = wan.engine
    for one in data.draw(st.lists(step(engine.describe()), min_size=1, max_size=6)):
        before, held = wan.now(), balances(engine)
        try:
            wan.go(one.target, one.fault)
        except ApplyError as error:
            assert "was injected" in str(error)
            assert (wan.now(), balances(engine)) == (before, held)
        else:
            assert wan.now() == one.target
        if one.commit:
            engine.commit()
        assert wan.there() == wan.hooks
        engine.check()
    last = wan.now()
    engine.commit()
    reached = balances(engine)
    assert wan.digests() == wan.bits

    for name in ("resident", "streamed"):  # straight there, from elsewhere
        place_all(engine, PLACEMENTS[name])
        engine.commit()
        wan.go(last)
        engine.commit()
        assert balances(engine) == reached
    assert torch.equal(ask(wan.tiny.pipe, engine), wan.tiny.reference)


@pytest.mark.parametrize("name", PLACEMENTS)
def test_applying_a_placement_again_does_nothing_at_all(wan: Managed, name: str) -> None:
    target = Placement(components=tuple(PLACEMENTS[name](part) for part in wan.engine.describe()))
    wan.go(target)
    held = balances(wan.engine)
    assert wan.go(target).seen == {}
    again = Points()
    with again.within("apply"):
        for part in target.components:
            wan.engine.place(part)  # nor does the engine, when it is asked for each component by itself
    assert again.seen == {}
    assert balances(wan.engine) == held
