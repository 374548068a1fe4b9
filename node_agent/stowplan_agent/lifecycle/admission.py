"""May a request run? Answered from what was measured, before anything of it runs. Pure.

What is no larger than a declared shape, in pixels of a frame and in frames, was measured or needs less. What is larger
in all was never measured and is refused. Between the two lies what has larger frames, but fewer of them: a decoder that
works frame by frame needs more for it than for anything declared. So its need is worked out from each declared shape,
and it is refused where by none of them it fits. Nothing that happens to a request changes the answer to the next one.
"""

from __future__ import annotations

from collections.abc import Sequence

from stowplan_agent.calibration import Extent, Observation, at_least
from stowplan_agent.inventory.frames import FrameContract
from stowplan_agent.lifecycle.prediction import alone
from stowplan_agent.planning import cost
from stowplan_api.placement import Placement
from stowplan_api.plan import Violation
from stowplan_api.record import CalibrationRecord, Interval, Workload


def refusal(
    record: CalibrationRecord, placement: Placement, contract: FrameContract, width: int, height: int, frames: int
) -> str | None:
    """Why a request of this size cannot run under the placement, in one sentence with its numbers; None if it may.

    Width and height in pixels. ``record`` has at least one workload, and each of them fits.
    """
    asked = f"{width}x{height}x{frames}"
    largest = max(record.workloads, key=_pixels)
    pixels = width * height * frames
    if pixels > _pixels(largest):
        size = f"{largest.width}x{largest.height}" + (f"x{largest.frames}" if largest.frames > 1 else "")
        return (
            f"{asked} is {pixels} pixels over all frames, and the largest declared shape, "
            f"{_named(largest, size)}, has {_pixels(largest)}; ask for less, or declare the shape in "
            "spec.workload.shapes"
        )
    if any(width * height <= one.width * one.height and frames <= one.frames for one in record.workloads):
        return None
    wanted = Extent(width * height, _latents(frames, contract))
    found = [_short(record, placement, contract, workload, wanted) for workload in record.workloads]
    short = [violation for violation in found if violation is not None]
    if len(short) < len(found):
        return None
    least = min(short, key=lambda violation: violation.short_bytes)
    return f"{asked} cannot fit: {least.message}; ask for smaller frames, or declare the shape in spec.workload.shapes"


def _short(
    record: CalibrationRecord, placement: Placement, contract: FrameContract, workload: Workload, wanted: Extent
) -> Violation | None:
    """What the request would be short of at least, judged from one workload; None where it may fit."""
    of = Extent(workload.width * workload.height, _latents(workload.frames, contract))
    only = alone(record, workload)
    needs = at_least([_observation(interval) for interval in only.intervals], of, wanted)
    intervals = tuple(
        interval.model_copy(
            update={"runs": (interval.runs[0].model_copy(update={"activation_bytes": (need.activation_bytes,)}),)}
        )
        for interval, need in zip(only.intervals, needs, strict=True)
    )
    return _worst(cost(only.model_copy(update={"intervals": intervals}), placement).violations)


def _worst(violations: Sequence[Violation]) -> Violation | None:
    device = [violation for violation in violations if violation.constraint == "device"]
    return max(device, key=lambda violation: violation.short_bytes, default=None)


def _observation(interval: Interval) -> Observation:
    run = interval.runs[0]
    return Observation(
        component=interval.component,
        entry=interval.entry,
        calls=run.passes if run.calls is None else run.calls,
        passes=run.passes,
        activation_bytes=max(run.activation_bytes),
        loose_seconds=run.loose_seconds,
        layer_seconds=dict(run.layer_seconds),
    )


def _pixels(workload: Workload) -> int:
    return workload.width * workload.height * workload.frames


def _latents(frames: int, contract: FrameContract) -> int:
    return 1 + (frames - 1) // (contract.temporal or 1)


def _named(workload: Workload, size: str) -> str:
    return size if workload.name == size else f"{workload.name} ({size})"
