"""One request of a record under a placement, stage by stage: what the card holds, and where the seconds go.

All numbers are `planning.cost`'s own. Seconds of a stage are what the request takes more when the stage is added to
those before it, which is exact, for nothing that comes later makes an earlier stage longer (PLANNING.md, section 3).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from stowplan_agent.planning import cost
from stowplan_agent.planning.held import held_bytes, layouts_of
from stowplan_agent.planning.layout import Layout
from stowplan_agent.planning.limits import activation_bytes, reserve_bytes
from stowplan_agent.planning.timeline import Stay, Timeline, timeline_of
from stowplan_agent.report.stage import Share, Stage
from stowplan_api.placement import Placement
from stowplan_api.plan import Plan
from stowplan_api.record import CalibrationRecord, Rank, Workload


@dataclass(frozen=True)
class Request:
    """The timeline of one workload, and what it is drawn for."""

    record: CalibrationRecord
    workload: Workload
    placement: Placement
    plan: Plan | None
    """The proof, where the placement is the planner's own; None for one that was given."""
    rank: Rank
    stages: tuple[Stage, ...]

    @cached_property
    def seconds(self) -> float:
        """Of the request."""
        return sum(stage.seconds for stage in self.stages)

    @property
    def waiting(self) -> float:
        """Seconds of the request in which compute waits for weights."""
        return sum(stage.waiting for stage in self.stages)

    @property
    def highest(self) -> Stage:
        """The stage with the highest peak."""
        return max(self.stages, key=lambda stage: stage.peak)

    @property
    def tightest(self) -> Stage:
        """The stage that leaves least beside its reserve, which need not be the highest."""
        return min(self.stages, key=self.left)

    @property
    def longest(self) -> Stage:
        """The stage that takes most of the seconds."""
        return max(self.stages, key=lambda stage: stage.seconds)

    def left(self, stage: Stage) -> int:
        """Bytes left beside the reserve in a stage; less than 0 where it does not fit."""
        return self.rank.capacity_bytes - stage.peak - stage.reserve


def requests_of(record: CalibrationRecord, placement: Placement, plan: Plan | None = None) -> tuple[Request, ...]:
    """One request of each workload of ``record`` under ``placement``."""
    timeline = timeline_of(record)
    layouts = layouts_of(record, placement)
    rank = _tightest(record, placement)
    return tuple(
        Request(
            record,
            workload,
            placement,
            plan,
            record.ranks[rank],
            tuple(_stages(record, placement, workload, course.stays, layouts, timeline, rank)),
        )
        for workload, course in zip(record.workloads, timeline.courses, strict=True)
    )


def _stages(
    record: CalibrationRecord,
    placement: Placement,
    workload: Workload,
    stays: Iterable[Stay],
    layouts: dict[str, Layout],
    timeline: Timeline,
    rank: int,
) -> Iterable[Stage]:
    before = 0.0
    for number, stay in enumerate(stays, start=1):
        interval, run = record.intervals[stay.interval], stay.run
        after = _seconds_until(record, placement, workload, stay.interval)
        held = []
        for name, layout in layouts.items():
            here = held_bytes(layout, timeline, name, stay.interval)
            held.append(Share(name, layout.always, here - layout.always))
        yield Stage(
            number=number,
            interval=stay.interval,
            component=interval.component,
            entry=interval.entry,
            passes=run.passes,
            start=before,
            seconds=max(after - before, 0.0),
            layers=run.passes * sum(sum(seconds) for seconds in run.layer_seconds.values()),
            outside_layers=run.passes * run.loose_seconds,
            held=tuple(held),
            outside=record.ranks[rank].outside_bytes,
            activations=activation_bytes(interval, rank),
            reserve=reserve_bytes(record, interval, record.ranks[rank]),
            adaptive=interval.adaptive,
        )
        before = after


def _seconds_until(record: CalibrationRecord, placement: Placement, workload: Workload, interval: int) -> float:
    """Seconds of one request of ``workload`` up to the end of an interval."""
    part = {"workloads": (workload,), "intervals": record.intervals[: interval + 1]}
    return cost(record.model_copy(update=part), placement).seconds


def _tightest(record: CalibrationRecord, placement: Placement) -> int:
    """Index of the rank that has least room in any interval."""
    table = cost(record, placement).device_bytes
    rooms = [
        min(
            rank.capacity_bytes - reserve_bytes(record, interval, rank) - used[index]
            for interval, used in zip(record.intervals, table, strict=True)
        )
        for index, rank in enumerate(record.ranks)
    ]
    return rooms.index(min(rooms))
