"""One row of the benchmark of predictions: what a placement should take, and what it took, alone and watched."""

from __future__ import annotations

from typing import Any

from capped_card import one_step
from result import say
from stowplan_agent.calibration import Watch
from stowplan_agent.lifecycle.session import Session, timeline_of
from stowplan_agent.planning import cost
from stowplan_agent.transaction import Measured
from stowplan_agent.weights import Timeline
from stowplan_api.diffusion_deployment import Shape
from stowplan_api.placement import Placement
from stowplan_api.record import CalibrationRecord


def row(
    session: Session, shape: Shape, unit: int, record: CalibrationRecord, name: str, placement: Placement, digest: str
) -> dict[str, Any] | None:
    """Predict, place, measure; None where the placement does not fit the card. ``unit`` is for what is said.

    Raises torch.OutOfMemoryError where the prediction was wrong about that.
    """
    predicted = cost(record, placement)
    card = record.ranks[0].capacity_bytes
    if not predicted.feasible:
        say(f"{card // unit}: {name} does not fit: {predicted.violations[0].message}")
        return None
    _place(session, placement)
    # The allocator takes its memory from the driver in the first request of a placement, as WarmAgain does.
    session.measure(one_step(shape), Timeline())
    measured = session.measure(shape, timeline_of(record, shape))
    again, intervals = watched(session, shape, record)
    assert measured.seconds is not None and again.seconds is not None
    peak = max(ranks[0] for ranks in predicted.device_bytes)
    say(
        f"{card // unit}: {name}: {measured.seconds:.3f} s, {measured.seconds / predicted.seconds:.4f} of the "
        f"prediction; peak {measured.peak_bytes / unit:.2f}, {measured.peak_bytes / peak:.4f} of it"
    )
    return {
        "cardBytes": card,
        "name": name,
        "predictedSeconds": predicted.seconds,
        "measuredSeconds": measured.seconds,
        "secondsRatio": measured.seconds / predicted.seconds,
        "predictedPeakBytes": peak,
        "measuredPeakBytes": measured.peak_bytes,
        "peakRatio": measured.peak_bytes / peak,
        "reservedPeakBytes": measured.reserved_peak_bytes,
        "watchedSeconds": again.seconds,
        "watchingRatio": again.seconds / measured.seconds,
        "digests": [measured.digest, again.digest],
        "bitEqual": measured.digest == digest and again.digest == digest,
        "intervals": intervals,
        "deviceBytes": [ranks[0] for ranks in predicted.device_bytes],
        "placement": placement.to_json(),
    }


def watched(session: Session, shape: Shape, record: CalibrationRecord) -> tuple[Measured, list[dict[str, Any]]]:
    """The request once more under a watch, with the timeline of the record; and seconds and activations of intervals.

    Seconds are from the end of the interval before, so that they hold what an interval waited for.
    """
    accelerator = session.accelerator
    watch = Watch(accelerator, lambda: session.engine.ledger.streamed_bytes)
    session.engine.observer = watch
    watch.begin()
    try:
        measured = session.measure(shape, timeline_of(record, shape))
    finally:
        session.engine.observer = None
    watch.finish()
    accelerator.synchronize()
    found, before = [], watch.intervals[0].start
    for interval in watch.intervals:
        found.append(
            {
                "component": interval.component,
                "entry": interval.entry,
                "seconds": accelerator.elapsed(before, interval.end),
                "waitSeconds": sum(accelerator.elapsed(start, end) for start, end in interval.waits),
                "activationBytes": interval.activation_bytes,
            }
        )
        before = interval.end
    return measured, found


def _place(session: Session, placement: Placement) -> None:
    """Go there: what leaves, leaves first; and give back what only the move needed."""
    session.accelerator.empty_cache()
    for entry in placement.components:
        if entry.mode != "Resident":
            session.engine.place(entry)
    for entry in placement.components:
        session.engine.place(entry)
    session.engine.commit()
    session.accelerator.synchronize()
    session.engine.check()


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The worst of all rows, against the bars of 3 %, 2 % and 1 %."""
    if not rows:
        return {}
    return {
        "worstSeconds": max(abs(one["secondsRatio"] - 1) for one in rows),
        "worstPeak": max(abs(one["peakRatio"] - 1) for one in rows),
        "meanWatching": sum(one["watchingRatio"] for one in rows) / len(rows) - 1,
        "allBitEqual": all(one["bitEqual"] for one in rows),
    }
