"""The same record asked for other requests: less activations, or fewer of its workloads.

What `limits` does for other hardware, this does for other shapes: an infeasible record is asked which would fit.
"""

from __future__ import annotations

from collections.abc import Collection

from stowplan_api.record import CalibrationRecord


def with_activations(record: CalibrationRecord, most: int) -> CalibrationRecord:
    """The record with activations of at most ``most`` bytes in every interval, on every rank."""
    intervals = tuple(
        interval.model_copy(
            update={
                "runs": tuple(
                    run.model_copy(update={"activation_bytes": tuple(min(one, most) for one in run.activation_bytes)})
                    for run in interval.runs
                )
            }
        )
        for interval in record.intervals
    )
    return record.model_copy(update={"intervals": intervals})


def with_workloads(record: CalibrationRecord, names: Collection[str]) -> CalibrationRecord:
    """The record with only the workloads of ``names``, of which there must be at least one."""
    return record.model_copy(
        update={
            "workloads": tuple(workload for workload in record.workloads if workload.name in names),
            "intervals": tuple(
                interval.model_copy(update={"runs": tuple(run for run in interval.runs if run.workload in names)})
                for interval in record.intervals
            ),
        }
    )
