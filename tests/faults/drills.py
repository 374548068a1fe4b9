"""One fault at one point of a start's later phases, and what the process holds before and after it.

A drill is run once to learn which points there are, and then once a point: no point is named by hand.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

from starts import Start, begin_again, return_to_seed, settings_of, start
from stowplan_agent.accelerators.announced import announce
from stowplan_agent.lifecycle import RollbackFailed
from stowplan_agent.transaction import Faults, Points
from stowplan_agent.weights.ledger import Tier


@dataclass(frozen=True)
class State:
    """Everything that a failed transaction must leave as it was."""

    bits: Mapping[str, str]
    """Of every component: names and values of parameters and buffers, wherever they lie."""
    balances: Mapping[tuple[str, str], int]
    """The ledger, by component and tier."""
    allocated: int
    """What the card says of weights."""
    hooks: Mapping[str, tuple[Any, ...]]
    """Of every module that has any: the hooks themselves, and wrappers of methods."""


@dataclass(frozen=True)
class Ending:
    """How a start with a fault in it ended."""

    started: Start
    died: str | None
    """What the process would have ended with, if it would have."""

    def said(self) -> str:
        """All that the status says of failures."""
        status = self.started.status
        return " | ".join([*(one.message for one in status.rollbacks), *(one.message for one in status.conditions)])


class Drill:
    """A measured start, whose later phases are run again and again."""

    def __init__(self, checkpoint: Path, card: str, shape: str) -> None:
        self.measured = start(settings_of(checkpoint, card, shapes=[shape]))
        assert self.measured.phase == "Ready", self.measured.error
        session = self.measured.startup.prepared.session
        self.engine, self.card, self.pipeline = session.engine, session.accelerator, session.pipeline
        announce(self.card)
        self.to_seed()
        self.at_seed = self.state()
        self.output = self.measured.output()

    def to_seed(self) -> None:
        """Where a start begins to plan, as loading leaves it: without host copies of what stays on the device."""
        return_to_seed(self.measured)
        self.engine.commit()

    def points(self, before: str = "") -> list[str]:
        """Every point of the phases from Solve on, with the faults of ``before`` on the way."""
        points = Points()
        self._run(Faults(before, points))
        return points.all()

    def at(self, point: str, before: str = "") -> Ending:
        """A start with a fault at one point."""
        return self._run(Faults(f"{before},{point}"))

    def state(self) -> State:
        modules = self.pipeline.modules()
        ledger = self.engine.ledger
        return State(
            bits={name: digest(module) for name, module in modules.items()},
            balances={(name, tier.value): ledger.held(name, tier) for name in modules for tier in Tier},
            allocated=self.card.counters().weights,
            hooks={f"{name}/{path}": hooks for name, module in modules.items() for path, hooks in hooked(module)},
        )

    def _run(self, faults: Faults) -> Ending:
        self.to_seed()
        settings, startup, progress = begin_again(self.measured, faults=faults)
        self.engine.commit()
        died = None
        try:
            startup.run()
        except RollbackFailed as error:
            died = str(error)
        return Ending(Start(settings, startup, progress, progress.status.phase), died)


@contextmanager
def drill_on(checkpoint: Path, card: str, shape: str) -> Iterator[Drill]:
    drill = Drill(checkpoint, card, shape)
    gc.collect()
    gc.freeze()  # what the libraries made stays: each request collects first, and would look at all of it
    try:
        yield drill
    finally:
        gc.unfreeze()
        drill.measured.startup.close()


def digest(module: torch.nn.Module) -> str:
    """Of all values and names, wherever they lie."""
    found = sha256()
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        assert not tensor.is_meta
        found.update(name.encode() + tensor.detach().contiguous().view(torch.uint8).numpy().data)
    return found.hexdigest()


def hooked(module: torch.nn.Module) -> Iterator[tuple[str, tuple[Any, ...]]]:
    for path, inner in module.named_modules():
        hooks = (*inner._forward_pre_hooks.values(), *inner._forward_hooks.values())
        wrapped = tuple(inner.__dict__.get(method) for method in ("forward", "encode", "decode", "generate"))
        if hooks or any(wrapped):
            yield path, (*hooks, *wrapped)
