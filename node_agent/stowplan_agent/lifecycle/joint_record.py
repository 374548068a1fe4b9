"""What all ranks have measured as one record: one entry a rank, and a timeline as slow as its slowest. Pure.

Each rank measures itself, at the same time as the others, while all run the same requests. Host memory is the node's:
ranks hold one copy together, and the least that any of them has seen free is what there is.
"""

from __future__ import annotations

from collections.abc import Sequence

from stowplan_agent.ranks.errors import RanksError
from stowplan_api.record import CalibrationRecord, Interval, Node, Run


def joined(records: Sequence[CalibrationRecord], peer_rates: Sequence[float]) -> CalibrationRecord:
    """Records of one rank each, by rank, as one. ``peer_rates``: bytes a second from a peer's device, by rank.

    Raises `RanksError` where the ranks have not run the same.
    """
    first = records[0]
    for rank, record in enumerate(records):
        same = (record.model, record.workloads, record.components, _timeline(record))
        if same != (first.model, first.workloads, first.components, _timeline(first)):
            raise RanksError(f"rank {rank} has measured another model or another timeline than rank 0")
    (node,) = first.nodes
    nodes = [record.nodes[0] for record in records]
    return first.model_copy(
        update={
            "extrapolated": any(record.extrapolated for record in records),
            "provenance": tuple(dict.fromkeys(sentence for record in records for sentence in record.provenance)),
            "nodes": (
                Node(
                    name=node.name,
                    pinnable_bytes=min(one.pinnable_bytes for one in nodes),
                    host_bytes=min(one.host_bytes for one in nodes),
                ),
            ),
            "ranks": tuple(
                record.ranks[0].model_copy(update={"rank": rank, "node": node.name, "peer_bytes_per_second": rate})
                for rank, (record, rate) in enumerate(zip(records, peer_rates, strict=True))
            ),
            "intervals": tuple(
                _interval([record.intervals[index] for record in records]) for index in range(len(first.intervals))
            ),
        }
    )


def _timeline(record: CalibrationRecord) -> list[object]:
    return [
        (one.component, one.entry, [(run.workload, run.passes, run.calls) for run in one.runs])
        for one in record.intervals
    ]


def _interval(intervals: Sequence[Interval]) -> Interval:
    return intervals[0].model_copy(
        update={
            "adaptive": any(one.adaptive for one in intervals),
            "reserve_bytes": max(one.reserve_bytes for one in intervals),
            "runs": tuple(_run(runs) for runs in zip(*(one.runs for one in intervals), strict=True)),
        }
    )


def _run(runs: Sequence[Run]) -> Run:
    """They wait for one another in every layer, so the slowest rank's seconds are everybody's."""
    first = runs[0]
    return first.model_copy(
        update={
            "activation_bytes": tuple(run.activation_bytes[0] for run in runs),
            "loose_seconds": max(run.loose_seconds for run in runs),
            "layer_seconds": {
                group: tuple(max(layer) for layer in zip(*(run.layer_seconds[group] for run in runs), strict=True))
                for group in first.layer_seconds
            },
        }
    )
