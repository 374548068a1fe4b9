"""A fault at every single operation of a change of placement: all of it is undone, on real pipelines.

Exhaustive on the video model; on two others every few points. What is undone: weights bit-equal, the ledger of every
component and tier, the card's bytes, hooks; and what was to be done can then be done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from faults.drills import digest, hooked
from pipelines.tiny_requests import PLACEMENTS, Tiny, ask, balances, load, managed, modules, place_all
from stowplan_agent.accelerators.announced import announce
from stowplan_agent.accelerators.emulated import EmulatedAccelerator
from stowplan_agent.transaction import ApplyError, Point, Points, UndoError, apply, difference
from stowplan_agent.weights import WeightsEngine
from stowplan_api.placement import Placement

MOVES = [
    ("resident", "streamed", 20),
    ("streamed", "resident", 20),
    ("half, forward, strided", "half, leading", 20),
    ("offload, half pinned, prefetched", "half, leading", 20),
    ("every layer", "a quarter, pageable", 14),
]
"""From, to, and operations of the accelerator that there are more of: where nothing comes, what is read back only."""
EVERY = {"tiny-wan": 1, "tiny-flux": 7, "tiny-sdxl": 17}
"""Of how many points one is tried."""


@dataclass
class Managed:
    """A pipeline under management, and the changes that are tried on it."""

    tiny: Tiny
    engine: WeightsEngine
    card: EmulatedAccelerator

    def now(self) -> Placement:
        return Placement(components=tuple(self.engine.entry(part.name) for part in self.engine.describe()))

    def to(self, name: str, faults: tuple[Point, ...] = ()) -> Points:
        """Change to a placement by name, with faults on the way."""
        points = Points(faults)
        target = Placement(components=tuple(PLACEMENTS[name](part) for part in self.engine.describe()))
        with points.within("apply"):
            apply(self.engine, difference(self.now(), target), check=self.engine.check)
        return points

    def state(self) -> tuple[Any, ...]:
        parts = modules(self.tiny.pipe)
        return (
            {name: digest(part) for name, part in parts.items()},
            balances(self.engine),
            self.card.counters().weights,
            [hook for part in parts.values() for hook in hooked(part)],
            self.now(),
        )

    def begin(self, name: str) -> None:
        """Be where a start is after it committed such a placement."""
        place_all(self.engine, PLACEMENTS[name])
        self.engine.commit()


@contextmanager
def management(folder: Path) -> Iterator[Managed]:
    tiny = load(folder)
    with managed(tiny.pipe) as (engine, card):
        announce(card)
        yield Managed(tiny, engine, card)


@pytest.fixture(scope="module")
def wan(tiny_wan: Path) -> Iterator[Managed]:
    with management(tiny_wan) as managed:
        yield managed


def every_fault(managed: Managed, before: str, after: str, every: int) -> int:
    """Fail each point in turn and look; then go all the way. How many there were."""
    managed.begin(before)
    state, names = managed.state(), managed.to(after).all()
    managed.begin(before)
    for name in names[::every]:
        # Memory that is short only once is found at the second try: here it stays short.
        point = Point.parse(f"{name}+" if ":allocate." in name else name)
        assert point is not None
        with pytest.raises(ApplyError, match=f"fault {name.rpartition('.')[0]}"):
            managed.to(after, (point,))
        assert managed.state() == state, name
    managed.to(after)
    return len(names)


@pytest.mark.parametrize(("before", "after", "more_than"), MOVES)
def test_t3_a_fault_at_any_operation_of_an_apply_gives_everything_back(
    wan: Managed, before: str, after: str, more_than: int
) -> None:
    assert every_fault(wan, before, after, EVERY["tiny-wan"]) > more_than
    assert torch.equal(ask(wan.tiny.pipe, wan.engine), wan.tiny.reference)


@pytest.mark.parametrize("model", ["tiny-flux", "tiny-sdxl"])
def test_so_it_is_on_other_models(write_tiny: Callable[[str], Path], model: str) -> None:
    with management(write_tiny(model)) as managed:
        for before, after, _ in MOVES[:3]:
            every_fault(managed, before, after, EVERY[model])
        assert torch.equal(ask(managed.tiny.pipe, managed.engine), managed.tiny.reference)


@pytest.mark.parametrize("kind", ["allocate", "copy", "wait", "record"])
def test_what_cannot_be_undone_is_never_said_to_be(wan: Managed, kind: str) -> None:
    """The third operation of a kind fails, and every one after it: the way back needs some of them."""
    wan.begin("resident")
    state = wan.state()
    names = [name for name in wan.to("half, forward, strided").all() if f":{kind}." in name]
    for number in range(1, len(names) + 1):
        wan.begin("resident")
        point = Point.parse(f"apply:{kind}.{number}+")
        assert point is not None
        with pytest.raises((ApplyError, UndoError)) as caught:
            wan.to("half, forward, strided", (point,))
        if caught.type is ApplyError:
            assert wan.state() == state
        assert wan.state()[0] == state[0]  # the bits are there even so
    wan.begin("resident")
    assert torch.equal(ask(wan.tiny.pipe, wan.engine), wan.tiny.reference)


def test_t3_memory_that_is_short_once_is_given_back_and_found_at_the_second_try(wan: Managed) -> None:
    wan.begin("streamed")
    names = [name for name in wan.to("resident").all() if ":allocate." in name]
    there = wan.state()
    for name in names:
        wan.begin("streamed")
        point = Point.parse(name)
        assert point is not None
        points = wan.to("resident", (point,))
        assert points.seen["apply", "empty_cache"] == 1
        assert wan.state() == there


def test_a_driver_that_locks_nothing_is_no_failure(wan: Managed) -> None:
    wan.begin("resident")
    wan.card.refused_pins = True
    try:
        wan.to("streamed")
    finally:
        wan.card.refused_pins = False
    assert sum(count for (_, tier), count in balances(wan.engine).items() if tier == "pinned") == 0
    wan.engine.check()
