"""``stowplan plan``: where the weights of a record should live, on this machine or on one that is not here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from stowplan_agent.cli.files import looked_into
from stowplan_agent.cli.output import INFEASIBLE, Output, out, print_json, user_errors, wide_table
from stowplan_agent.report.explanation import infeasible_lines, move_lines, workload_lines, worth_lines
from stowplan_agent.report.provenance import estimate_note
from stowplan_api.model import ContractError
from stowplan_api.placement import Placement
from stowplan_api.plan import Plan
from stowplan_api.quantity import MOST, for_people, format_quantity, parse_quantity
from stowplan_api.record import CalibrationRecord

DeviceMemory = Annotated[
    str | None, typer.Option("--device-memory", help="Plan for cards of this size, e.g. 24Gi, instead of the record's.")
]
HostMemory = Annotated[
    str | None,
    typer.Option("--host-memory", help="Plan for nodes of this host memory; what can be pinned scales with it."),
]


def plan(
    record: Annotated[Path, typer.Argument(help="A CalibrationRecord, as JSON.")],
    device_memory: DeviceMemory = None,
    host_memory: HostMemory = None,
    current: Annotated[
        Path | None,
        typer.Option(help="The placement, or Plan, to move from: the answer is then reachable by safe moves."),
    ] = None,
    output: Annotated[Output, typer.Option(help="Form of the output.")] = Output.TABLE,
) -> None:
    """Solve for the fastest placement of a record that fits. Exits 3 when none does."""
    with user_errors(ContractError):
        measured = on_machine(CalibrationRecord.read(record), device_memory, host_memory)
        answer = solved(measured, placement_in(current) if current is not None else None)
    if output is Output.JSON:
        print_json(answer.to_json())
    else:
        show(measured, answer)
    if answer.status == "Infeasible":
        raise typer.Exit(INFEASIBLE)


def placement_in(path: Path) -> Placement:
    """The placement that a file is, or that the Plan in it has. Raises `ContractError` naming what is wrong."""
    return placement_of(Plan.read(path), str(path)) if kind_of(path) == "Plan" else Placement.read(path)


def placement_of(made: Plan, source: str) -> Placement:
    """The placement of a plan. Raises `ContractError` where nothing fitted."""
    if made.placement is None:
        raise ContractError(f"{source}: this Plan says that nothing fits, so it has no placement; give one that has")
    return made.placement


def kind_of(path: Path) -> object:
    """The ``kind`` that a file says it is; None where it cannot be told, which reading the file then explains."""
    return looked_into(path).get("kind")


def solved(record: CalibrationRecord, current: Placement | None = None) -> Plan:
    """The plan of a record, with what it saves against the current placement, and marked if it is an estimate."""
    from stowplan_agent.planning import cost, solve

    answer = solve(record, current=current).model_copy(update={"estimate": estimate_note(record)})
    if current is None or answer.cost is None:
        return answer
    now = cost(record, current).seconds
    return answer.model_copy(update={"current_seconds": now, "saved_seconds": max(now - answer.cost.seconds, 0.0)})


def on_machine(record: CalibrationRecord, device_memory: str | None, host_memory: str | None) -> CalibrationRecord:
    """The record on cards and nodes of the sizes that the two flags give. Raises `ContractError` for a bad quantity."""
    from stowplan_agent.planning import with_device_memory, with_host_memory

    if device_memory is not None:
        record = with_device_memory(record, _quantity("--device-memory", device_memory))
    if host_memory is not None:
        record = with_host_memory(record, _quantity("--host-memory", host_memory))
    return record


def _quantity(flag: str, text: str) -> int:
    try:
        nbytes = parse_quantity(text)
    except ValueError as error:
        raise ContractError(f"{flag}: {error}") from None
    if nbytes > MOST:
        raise ContractError(f"{flag}: {text} is out of range; the largest is {format_quantity(MOST)}")
    return nbytes


def show(record: CalibrationRecord, answer: Plan) -> None:
    """Print a plan for people; one made from an estimated record says so first."""
    note = estimate_note(record)
    name = f"ESTIMATE, not measured: {record.model.name}" if note else record.model.name
    if note:
        out.print(note, soft_wrap=True)
    if answer.status == "Infeasible":
        for line in infeasible_lines(name, answer):
            out.print(line, soft_wrap=True)
        return
    assert answer.cost is not None
    table = wide_table("component", "chosen", "why", title=f"{name}: {answer.cost.seconds:.4g} s a request")
    for explanation in answer.explanations:
        lost = f"not {explanation.lost}: " if explanation.lost else ""
        table.add_row(explanation.component, explanation.chosen, f"{lost}{explanation.because}")
    out.print(table)
    out.print(_peaks(record, answer))
    for line in (*workload_lines(answer), *worth_lines(answer), *move_lines(answer)):
        out.print(line, soft_wrap=True)
    out.print(f"Proven by {answer.proof['solver']} over {answer.proof['space']}.")


def _peaks(record: CalibrationRecord, answer: Plan) -> Table:
    from stowplan_agent.planning.limits import reserve_bytes

    assert answer.cost is not None
    table = wide_table("interval", "rank", "device", "reserve", "capacity", "left", title="device memory")
    for index, interval in enumerate(record.intervals):
        name = f"{interval.component} {interval.entry}" if interval.component else interval.entry
        for position, rank in enumerate(record.ranks):
            used = answer.cost.device_bytes[index][position]
            reserve = reserve_bytes(record, interval, rank)
            left = rank.capacity_bytes - used - reserve
            numbers = (for_people(number) for number in (used, reserve, rank.capacity_bytes, left))
            table.add_row(f"{index} {name}", str(rank.rank), *numbers)
    return table
