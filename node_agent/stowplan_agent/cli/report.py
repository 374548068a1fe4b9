"""``stowplan report``: a record as a page and as tables: one request, second by second."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stowplan_agent.cli.documents import FileOption, Form, FormOption, deliver, form_of
from stowplan_agent.cli.output import INFEASIBLE, out, user_errors, wide_table
from stowplan_agent.cli.plan import DeviceMemory, HostMemory, on_machine, placement_in
from stowplan_agent.cli.residency import read_residency
from stowplan_agent.report.provenance import estimate_note
from stowplan_api.model import ContractError
from stowplan_api.placement import Placement
from stowplan_api.plan import Plan
from stowplan_api.record import CalibrationRecord
from stowplan_api.residency_placement import ResidencyPlacementStatus

if TYPE_CHECKING:
    from stowplan_agent.report.request import Request


def report(
    record: Annotated[Path, typer.Argument(help="A CalibrationRecord, or what a pod answers at /residency, as JSON.")],
    placement: Annotated[Path | None, typer.Option(help="Show it under this placement, or that of this Plan.")] = None,
    workload: Annotated[str | None, typer.Option(help="Only the request of this name.")] = None,
    device_memory: DeviceMemory = None,
    host_memory: HostMemory = None,
    output: FormOption = None,
    file: FileOption = None,
) -> None:
    """Show one request of a record: memory stacked by component, the peaks, and where the seconds go.

    As a page also which card is worth it and, of what a pod answers at /residency, how it started and what was taken
    back. Exits 3 when no placement fits, or the one that was given does not; what is short is shown all the same.
    """
    form = form_of(output, file, record, placement)
    with user_errors(ContractError):
        asked = read_residency(record)
        here = device_memory is None and host_memory is None
        measured = on_machine(asked.record, device_memory, host_memory)
        found = _requests(measured, placement, workload, asked.placement if here else None)
    status = asked.status if here and placement is None else None
    deliver(form, file, lambda: _show(found), lambda: _text(form, found, status))
    plan = found[0].plan
    if plan.status == "Infeasible" if plan is not None else any(one.left(one.tightest) < 0 for one in found):
        raise typer.Exit(INFEASIBLE)


def _requests(
    record: CalibrationRecord, path: Path | None, workload: str | None, in_force: Placement | None
) -> tuple[Request, ...]:
    from stowplan_agent.planning import seed_placement, solve
    from stowplan_agent.report.request import requests_of

    plan: Plan | None = None
    if path is not None:
        placed = placement_in(path)
        names, known = {entry.name for entry in placed.components}, {part.name for part in record.components}
        if names != known:
            raise ContractError(f"{path} places {', '.join(sorted(names))}; the record has {', '.join(sorted(known))}")
    elif in_force is not None:
        placed = in_force
    else:
        plan = solve(record)
        placed = plan.placement or seed_placement(record.components, ranks=len(record.ranks))
    found = requests_of(record, placed, plan)
    chosen = tuple(one for one in found if workload in (None, one.workload.name))
    if not chosen:
        names_of = ", ".join(one.workload.name for one in found)
        raise ContractError(f"--workload: {workload} is not in the record, which has {names_of}")
    return chosen


def _text(form: Form, found: tuple[Request, ...], status: ResidencyPlacementStatus | None) -> str:
    if form is Form.HTML:
        from stowplan_agent.report.frontier import frontier_around
        from stowplan_agent.report.request_page import request_page

        return request_page(found, status=status, frontier=frontier_around(found[0].record))
    if form is Form.SVG:
        from stowplan_agent.report.request_picture import timeline

        return timeline(found[0]) + "\n"
    from stowplan_agent.report.request_json import request_json

    value = [request_json(one) for one in found]
    return json.dumps(value[0] if len(value) == 1 else value, indent=1, ensure_ascii=False) + "\n"


def _show(found: tuple[Request, ...]) -> None:
    from stowplan_agent.report.explanation import infeasible_lines
    from stowplan_agent.report.request_facts import (
        MEMORY,
        SECONDS,
        headline,
        homes,
        memory_row,
        seconds_row,
        shape_of,
    )

    first = found[0]
    note = estimate_note(first.record)
    lines = [note] if note else []
    if first.plan is not None and first.plan.status == "Infeasible":
        lines += infeasible_lines(first.record.model.name, first.plan)
    for line in lines:
        out.print(line, soft_wrap=True)
    for request in found:
        for title, headings, row in (("where the seconds go", SECONDS, seconds_row), ("memory", MEMORY, memory_row)):
            name = f"{request.record.model.name}, {shape_of(request.workload)}: {title}"
            table = wide_table(*headings, right=headings[1:], title=name)
            for stage in request.stages:
                table.add_row(*row(request, stage))
            out.print(table)
        out.print(headline(request), soft_wrap=True)
    table = wide_table("component", "weights", "placed", "why", right=("weights",))
    for home in homes(first):
        table.add_row(*home)
    out.print(table)
