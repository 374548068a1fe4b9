"""What ranks have measured as one record: everybody's memory, the slowest one's seconds, the least host memory."""

from __future__ import annotations

from typing import Any

import pytest

from planned_records import MIB, RECORD
from stowplan_agent.lifecycle.joint_record import joined
from stowplan_agent.planning import solve
from stowplan_agent.ranks.errors import RanksError
from stowplan_api.record import CalibrationRecord


def measured(*, more: int = 0, slower: float = 1.0, capacity: int | None = None, **fields: Any) -> CalibrationRecord:
    """The record of one rank, with more activations, other seconds, another card."""
    intervals = []
    for interval in RECORD.intervals:
        runs = tuple(
            run.model_copy(
                update={
                    "activation_bytes": (run.activation_bytes[0] + more,),
                    "loose_seconds": run.loose_seconds * slower,
                    "layer_seconds": {
                        name: tuple(one * slower for one in layers) for name, layers in run.layer_seconds.items()
                    },
                }
            )
            for run in interval.runs
        )
        intervals.append(interval.model_copy(update={"runs": runs}))
    (rank,) = RECORD.ranks
    rank = rank.model_copy(update={"capacity_bytes": capacity or rank.capacity_bytes})
    return RECORD.model_copy(update={"intervals": tuple(intervals), "ranks": (rank,), **fields})


def test_memory_is_each_ranks_and_seconds_are_those_of_the_slowest() -> None:
    node = RECORD.nodes[0].model_copy(update={"host_bytes": MIB, "pinnable_bytes": 3})
    record = joined([measured(), measured(more=7, slower=2.0, nodes=(node,), extrapolated=True)], [1e9, 2e9])
    assert CalibrationRecord.from_json(record.to_json()) == record
    assert [rank.rank for rank in record.ranks] == [0, 1]
    assert [rank.peer_bytes_per_second for rank in record.ranks] == [1e9, 2e9]
    assert record.nodes == (node.model_copy(update={"name": record.ranks[0].node}),)
    assert record.extrapolated
    for one, single in zip(record.intervals, RECORD.intervals, strict=True):
        for run, before in zip(one.runs, single.runs, strict=True):
            assert run.activation_bytes == (before.activation_bytes[0], before.activation_bytes[0] + 7)
            assert run.loose_seconds == before.loose_seconds * 2
            assert run.layer_seconds == {
                name: tuple(2 * layer for layer in layers) for name, layers in before.layer_seconds.items()
            }


def test_a_plan_for_unequal_ranks_fits_the_tightest() -> None:
    (rank,) = RECORD.ranks
    tight = rank.capacity_bytes * 2 // 3
    plan = solve(joined([measured(), measured(capacity=tight)], [0.0, 0.0]))
    assert plan.cost is not None
    assert max(ranks[0] for ranks in plan.cost.device_bytes) <= tight


def test_ranks_that_have_run_another_timeline_have_no_record() -> None:
    other = measured(intervals=RECORD.intervals[1:])
    with pytest.raises(RanksError, match="rank 1 has measured another"):
        joined([measured(), other], [0.0, 0.0])
