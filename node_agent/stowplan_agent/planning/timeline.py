"""The order of intervals as each workload runs them, and what follows from it.

An interval with 0 passes in a workload does not happen there: it is nobody's predecessor (PLANNING.md, small print). So
whether a component must be brought in, and what a prefetch can hide behind, is decided per workload.
"""

from __future__ import annotations

from dataclasses import dataclass

from stowplan_api.record import CalibrationRecord, Run


@dataclass(frozen=True, slots=True)
class Stay:
    """One interval of one workload."""

    interval: int
    component: str | None
    run: Run
    loads: bool
    """Whether the component starts here, so that what is not always on the device is brought in."""
    before: int | None
    """Index of the interval before it in this workload; None for the first."""


@dataclass(frozen=True, slots=True)
class Course:
    """One workload: its share of the average (shares sum to 1) and its intervals in order."""

    workload: str
    share: float
    stays: tuple[Stay, ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    """All courses of a record, and the intervals in which each component is at home."""

    courses: tuple[Course, ...]
    own: dict[str, frozenset[int]]
    """Intervals that name the component and have passes in some workload."""
    before: dict[str, frozenset[int]]
    """Intervals during which a prefetch of the component holds its bytes, besides its own ones."""
    layered: frozenset[str]
    """Components with repeated layers."""


def timeline_of(record: CalibrationRecord) -> Timeline:
    """The courses of all workloads of ``record``."""
    weights = sum(workload.weight for workload in record.workloads)
    courses = tuple(
        Course(workload.name, workload.weight / weights, _stays(record, workload.name)) for workload in record.workloads
    )
    own: dict[str, set[int]] = {component.name: set() for component in record.components}
    before: dict[str, set[int]] = {component.name: set() for component in record.components}
    for stay in (stay for course in courses for stay in course.stays):
        if stay.component is None:
            continue
        own[stay.component].add(stay.interval)
        if stay.loads and stay.before is not None:
            before[stay.component].add(stay.before)
    return Timeline(
        courses,
        {name: frozenset(intervals) for name, intervals in own.items()},
        {name: frozenset(intervals - own[name]) for name, intervals in before.items()},
        frozenset(component.name for component in record.components if component.groups),
    )


def _stays(record: CalibrationRecord, workload: str) -> tuple[Stay, ...]:
    stays: list[Stay] = []
    for index, interval in enumerate(record.intervals):
        for run in interval.runs:
            if run.workload != workload or run.passes == 0:
                continue
            previous = stays[-1] if stays else None
            loads = interval.component is not None and (previous is None or previous.component != interval.component)
            stays.append(Stay(index, interval.component, run, loads, previous.interval if previous else None))
    return tuple(stays)
