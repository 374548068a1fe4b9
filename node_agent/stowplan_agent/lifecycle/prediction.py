"""What a record promises of single requests under a placement: each of the same thing that is measured beside it. Pure.

A plan is priced as an average over the declared shapes, at the steps that users ask for. What a proof measures is one
shape in a few steps, and what is served is one shape at a time: neither can be compared with that average.
"""

from __future__ import annotations

from dataclasses import dataclass

from stowplan_agent.planning import cost
from stowplan_api.placement import Placement
from stowplan_api.record import CalibrationRecord, Workload


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


def alone(record: CalibrationRecord, workload: Workload) -> CalibrationRecord:
    """The record as if this workload were the only one."""
    intervals = tuple(
        interval.model_copy(update={"runs": tuple(run for run in interval.runs if run.workload == workload.name)})
        for interval in record.intervals
    )
    return record.model_copy(update={"workloads": (workload,), "intervals": intervals})
