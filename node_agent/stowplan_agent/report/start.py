"""What a status tells of one start, in words: its phases, what the proof found, what was taken back. Pure.

A status may be of any moment of a start, so each part may be missing; then there are no words of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from stowplan_agent.report.drawing import duration
from stowplan_agent.report.request_facts import size
from stowplan_api.conditions import find
from stowplan_api.contract import PlacementCondition
from stowplan_api.residency_placement import ResidencyPlacementStatus


@dataclass(frozen=True, slots=True)
class PhaseBar:
    """One phase of a start: when it began and how long it took, in seconds from the first one's begin."""

    name: str
    begin: float
    seconds: float | None
    """None while it runs."""


def phase_bars(status: ResidencyPlacementStatus) -> list[PhaseBar]:
    """The phases of a boot one behind the other; they follow at once, so only their lengths are needed."""
    bars, begin = [], 0.0
    for phase in status.phases:
        seconds = None if phase.milliseconds is None else phase.milliseconds / 1000
        bars.append(PhaseBar(phase.name, begin, seconds))
        begin += seconds or 0.0
    return bars


def start_sentence(status: ResidencyPlacementStatus) -> str:
    """How long the start took, and what took longest."""
    done = [bar for bar in phase_bars(status) if bar.seconds is not None]
    if not done:
        return ""
    total, longest = sum(bar.seconds or 0.0 for bar in done), max(done, key=lambda bar: bar.seconds or 0.0)
    state = f"The start took {duration(total)}" if status.phase in ("Ready", "RolledBack") else f"Now: {status.phase}"
    return f"{state}, {duration(longest.seconds or 0.0)} of it in {longest.name}."


def proof_rows(status: ResidencyPlacementStatus) -> list[tuple[str, str, str, str]]:
    """What, promised, measured, difference: only of what is the same thing on both sides."""
    plan, proof = status.plan, status.validation
    if proof is None:
        return []
    rows = []
    if plan is not None and plan_serves(status):
        promised, measured = plan.predicted_peak_bytes, proof.peak_bytes
        rows.append(("highest peak of device memory", size(promised), size(measured), off(promised, measured)))
    before, now = proof.reference_milliseconds / 1000, proof.milliseconds / 1000
    streamed = "the proof's request, against the same with everything streamed"
    rows.append((streamed, duration(before), duration(now), off(before, now)))
    bits = "the same" if proof.bit_equal else "not the same bits"
    rows.append(("its output, bit for bit", "the same", bits, "" if proof.bit_equal else "differs"))
    return rows


def plan_serves(status: ResidencyPlacementStatus) -> bool:
    """Whether what is in force is what the plan in the status describes."""
    return status.plan is not None and status.plan.kept is None and status.phase != "RolledBack"


def off(promised: float, measured: float) -> str:
    """How far the measured is off the promised: ``+1.2 %``, ``none``."""
    if promised <= 0:
        return ""
    share = 100 * (measured / promised - 1)
    return "none" if abs(share) < 0.005 else f"{share:+.2g} %" if abs(share) < 10 else f"{share:+.0f} %"


def proof_sentence(status: ResidencyPlacementStatus) -> str:
    """The agent's own sentence about the proof of this boot; empty before there is one."""
    found = find(status.conditions, PlacementCondition.VALIDATED)
    return found.message if found is not None and found.message else ""


def state_sentence(status: ResidencyPlacementStatus) -> str:
    """Where this boot is, for the top of a page."""
    ready = find(status.conditions, PlacementCondition.READY)
    why = f": {ready.message}" if ready is not None and ready.status != "True" and ready.message else ""
    kept = status.plan.kept if status.plan is not None else None
    stead = (
        f"; in the plan's stead serves: {kept}"
        if kept
        else ": the planned placement was proven in this boot and serves."
    )
    words = {
        "Ready": f"Ready{stead}",
        "RolledBack": "Rolled back: the plan did not prove itself, and the last good placement serves.",
        "Failed": f"Failed{why or ': nothing was proven, and nothing serves.'}",
    }
    return words.get(status.phase, f"Starting, in phase {status.phase}{why}")


def rollback_rows(status: ResidencyPlacementStatus) -> list[tuple[str, str, str, str, str]]:
    """When, why, from, to, and what was measured; newest first."""
    return [
        (one.time, f"{one.reason}: {one.message}" if one.message else one.reason, one.from_, one.to, one.measured)
        for one in reversed(status.rollbacks)
    ]


def reasons_of(status: ResidencyPlacementStatus) -> dict[str, str]:
    """Why each component is where it is, in the words of the plan; none where that plan does not serve."""
    lines = status.plan.explanations if status.plan is not None and plan_serves(status) else ()
    pairs = (line.partition(": ") for line in lines)
    return {name: why.partition("; ")[2] or why for name, colon, why in pairs if colon}
