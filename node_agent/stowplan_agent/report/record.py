"""A record for people: its intervals, and what each needs."""

from __future__ import annotations

from rich.table import Table

from stowplan_api.quantity import for_people
from stowplan_api.record import CalibrationRecord


def interval_table(record: CalibrationRecord) -> Table:
    """One row an interval of the default workload: what runs, how often, how long, how high activations rise."""
    table = Table(title=f"{record.model.name}, {record.workloads[0].name}")
    table.add_column("interval", overflow="fold")
    for heading in ("passes", "seconds a pass", "layers", "activations"):
        table.add_column(heading, justify="right")
    for interval in record.intervals:
        run = interval.runs[0]
        layers = sum(sum(seconds) for seconds in run.layer_seconds.values())
        table.add_row(
            f"{interval.component}.{interval.entry}" if interval.component else f"({interval.entry})",
            str(run.passes),
            f"{run.loose_seconds + layers:.6f}",
            "+".join(str(len(seconds)) for seconds in run.layer_seconds.values()) or "-",
            for_people(max(run.activation_bytes)),
        )
    return table
