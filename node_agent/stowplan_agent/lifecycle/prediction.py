"""What a record promises of single requests under a placement: each of the same thing that is measured beside it. Pure.

A plan is priced as an average over the declared shapes, at the steps that users ask for. What a proof measures is one
shape in a few steps, and what is served is one shape at a time: neither can be compared with that average.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from stowplan_agent.planning import cost
from stowplan_api.placement import Placement
from stowplan_api.record import CalibrationRecord, Interval, Run, Workload


@dataclass(frozen=True)
class Promise:
    """One request, as it was priced."""

    seconds: float
    peak_bytes: int
    """Of device use, what is outside the allocator included."""


def promise(record: CalibrationRecord, placement: Placement, workload: Workload) -> Promise:
    """The price of one request of one of the record's workloads."""
    price = cost(alone(record, workload), placement)
    return Promise(price.seconds, max(max(ranks) for ranks in price.device_bytes))


Size = tuple[int, int, int]
"""Width and height in pixels, and frames."""


def promises(record: CalibrationRecord, placement: Placement) -> dict[Size, tuple[Workload, Promise]]:
    """What was promised of each declared shape; nothing where the record was extrapolated."""
    if record.extrapolated:
        return {}
    return {(one.width, one.height, one.frames): (one, promise(record, placement, one)) for one in record.workloads}


def as_called(record: CalibrationRecord, workload: Workload, calls: Mapping[str, int]) -> CalibrationRecord | None:
    """The record of this workload alone, as if its components had been called so often.

    How often is not the shape's to say alone: a negative prompt makes some pipelines encode twice, and denoise twice a
    step. None where that cannot be worked out: for a component that was called and never measured, or the other way.
    """
    only = alone(record, workload)
    measured: Counter[str] = Counter()
    for interval in only.intervals:
        if interval.component is not None:
            measured[interval.component] += sum(map(_calls, interval.runs))
    if {name for name in measured if measured[name]} != {name for name, count in calls.items() if count}:
        return None

    def scaled(interval: Interval) -> Interval:
        name = interval.component
        if name is None or calls.get(name, 0) == measured[name]:
            return interval
        return interval.model_copy(
            update={"runs": tuple(_scaled(run, calls[name], measured[name]) for run in interval.runs)}
        )

    return only.model_copy(update={"intervals": tuple(map(scaled, only.intervals))})


def _calls(run: Run) -> int:
    return run.passes if run.calls is None else run.calls


def _scaled(run: Run, called: int, measured: int) -> Run:
    """Of several intervals of a component each has its part of the calls."""
    passes = round(run.passes * called / measured)
    return run.model_copy(update={"passes": passes, "calls": round(_calls(run) * called / measured)})


def alone(record: CalibrationRecord, workload: Workload) -> CalibrationRecord:
    """The record as if this workload were the only one."""
    intervals = tuple(
        interval.model_copy(update={"runs": tuple(run for run in interval.runs if run.workload == workload.name)})
        for interval in record.intervals
    )
    return record.model_copy(update={"workloads": (workload,), "intervals": intervals})
