"""One cap of `regret.py`: the plan and its rivals, each measured, and the close ones again in turn."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

from capped_card import one_step, place
from result import say
from rival_placements import rivals
from stowplan_agent.lifecycle.session import Session, timeline_of
from stowplan_agent.lifecycle.target import with_whole_pins
from stowplan_agent.planning import cost, solve
from stowplan_agent.transaction import Measured
from stowplan_agent.weights import Timeline
from stowplan_api.diffusion_deployment import Shape
from stowplan_api.placement import Placement
from stowplan_api.record import CalibrationRecord

RIVALS = 12
"""Against a measured sweep of at least 12 others."""
CLOSE = 1.05
"""Rivals up to this many times the plan's seconds are measured again."""
CLOSEST = 2
ROUNDS = 2


@dataclass
class Run:
    """One placement on one cap."""

    name: str
    placement: Placement
    row: dict[str, Any]
    again: list[float]

    @property
    def seconds(self) -> float | None:
        """Of the request that counts: the median of the repeated ones, else the only one."""
        return median(self.again) if self.again else self.row.get("seconds")


class Contest:
    """The plan and its rivals on one cap."""

    def __init__(self, session: Session, record: CalibrationRecord, shape: Shape) -> None:
        """``record`` has the cap."""
        self.session, self.record, self.shape = session, record, shape
        self.timeline = timeline_of(record, shape)
        self.runs: list[Run] = []

    def measure(self, name: str, placement: Placement) -> Run:
        """One request in a placement, or what became of it."""
        predicted = cost(self.record, placement)
        row: dict[str, Any] = {
            "name": name,
            "predictedSeconds": predicted.seconds,
            "predictedPeakBytes": max(ranks[0] for ranks in predicted.device_bytes),
        }
        began = time.monotonic()
        try:
            place(self.session, self.record, placement)
            row["placeSeconds"] = time.monotonic() - began
            measured = self._request()
        except torch.OutOfMemoryError as error:
            row |= {"outcome": "out of memory", "error": str(error).split("\n")[0]}
        except Exception as error:  # a finding like any other: the rows that follow are not lost for it
            row |= {"outcome": "error", "error": f"{type(error).__name__}: {error}"}
        else:
            row |= {
                "outcome": "ran",
                "seconds": measured.seconds,
                "peakBytes": measured.peak_bytes,
                "reservedPeakBytes": measured.reserved_peak_bytes,
                "digest": measured.digest,
            }
        row["placement"] = placement.to_json()
        say(f"{name}: {row.get('seconds') or row['error']}, predicted {predicted.seconds:.3f}")
        self.runs.append(Run(name, placement, row, []))
        return self.runs[-1]

    def _request(self) -> Measured:
        """One request after a short one: when a pod serves, the allocator has met the sizes that it is asked for."""
        self.session.measure(one_step(self.shape), Timeline())
        return self.session.measure(self.shape, self.timeline)

    def repeat(self) -> None:
        """The plan and what is close to it, in turn: there and back, so that a drift counts for none."""
        plan, *others = self.runs
        limit = CLOSE * plan.row.get("seconds", 0.0)
        close = sorted((one for one in others if one.row.get("seconds", limit) < limit), key=_first_seconds)[:CLOSEST]
        for number in range(ROUNDS if close else 0):
            for run in (plan, *close)[:: -1 if number % 2 else 1]:
                place(self.session, self.record, run.placement)
                run.again.append(self._request().seconds or 0.0)
            say(f"round {number}: " + ", ".join(f"{run.name} {run.again[-1]:.3f}" for run in (plan, *close)))

    def document(self, card_bytes: int, reference: str) -> dict[str, Any]:
        """What is known so far."""
        if not self.runs:
            return {"capBytes": card_bytes, "rivals": 0, "planned": None, "regret": None, "diffusers": [], "rows": []}
        plan, *others = self.runs
        ran = [one for one in others if one.seconds is not None]
        best = min(ran, key=_seconds, default=None)
        return {
            "capBytes": card_bytes,
            "rivals": len(ran),
            "planned": plan.seconds,
            "predicted": plan.row["predictedSeconds"],
            "best": best and {"name": best.name, "seconds": best.seconds},
            "regret": plan.seconds / _seconds(best) - 1 if plan.seconds and best else None,
            "pairs": {run.name: run.again for run in self.runs if run.again},
            "bitEqual": all(run.row["digest"] == reference for run in self.runs if "digest" in run.row),
            "diffusers": [],
            "rows": [run.row for run in self.runs],
        }


def _seconds(run: Run) -> float:
    return float("inf") if run.seconds is None else run.seconds


def _first_seconds(run: Run) -> float:
    return float(run.row.get("seconds", "inf"))


def sweep(found: Contest, budget: float, tell: Callable[[], None]) -> bool:
    """Measure the plan, its rivals for ``budget`` seconds or until there are enough, and the close ones again.

    ``tell`` is called after each row. False where the planner has no answer.
    """
    began = time.monotonic()
    plan = solve(found.record)
    say(f"solved in {time.monotonic() - began:.2f} s: {plan.status}")
    if plan.placement is None:
        return False
    chosen = with_whole_pins(found.record, plan.placement)
    found.measure("plan", chosen)
    tell()
    for name, placement in rivals(found.record, chosen):
        enough = sum(run.seconds is not None for run in found.runs[1:]) >= RIVALS
        if enough and time.monotonic() - began > budget:
            break
        found.measure(name, placement)
        tell()
    try:
        found.repeat()
    except torch.OutOfMemoryError as error:
        say(f"what ran once does not run again: {error}")
    return True
