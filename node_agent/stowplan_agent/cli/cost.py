"""``stowplan cost``: the price of placements, one JSON line for each, or one row of a table."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.table import Table

from stowplan_agent import collector
from stowplan_agent.cli.output import Output, out, user_errors, wide_table
from stowplan_agent.cli.plan import DeviceMemory, HostMemory, on_machine, placement_of
from stowplan_api.model import ContractError, parse_json
from stowplan_api.placement import Placement
from stowplan_api.plan import Cost, Plan
from stowplan_api.quantity import for_people
from stowplan_api.record import CalibrationRecord

FEW: Final = 1000
"""Placements up to which each is priced on its own."""


def cost(
    record: Annotated[Path, typer.Argument(help="A CalibrationRecord, as JSON.")],
    placements: Annotated[
        str, typer.Argument(help="A file with one placement or Plan a line, as JSON; - for standard input.")
    ],
    device_memory: DeviceMemory = None,
    host_memory: HostMemory = None,
    output: Annotated[Output, typer.Option(help="json, one line a placement, or table.")] = Output.JSON,
) -> None:
    """Price placements: seconds of a request, device and host bytes, and every limit that is broken."""
    # Placements have no cycles; looking for some in 100,000 of them would take longer than reading them.
    with user_errors(ContractError), collector.paused():
        measured = on_machine(CalibrationRecord.read(record), device_memory, host_memory)
        # All lines are read before the first is priced: a bad one leaves no half of an answer behind.
        read = placements_of(measured, placements)
        prices = _prices(measured, read)
        if output is Output.TABLE:
            out.print(cost_table(list(prices)))
            return
        for priced in prices:
            print(json.dumps(priced.to_json(), ensure_ascii=False))


def _prices(record: CalibrationRecord, placements: Sequence[Placement]) -> Iterable[Cost]:
    """Few placements cost what a plan says of them, to the last digit; many are priced together, which only rounds."""
    from stowplan_agent.planning import cost as price
    from stowplan_agent.planning import costs

    if len(placements) <= FEW:
        return (price(record, placement) for placement in placements)
    return costs(record, placements)


def cost_table(prices: Sequence[Cost]) -> Table:
    """One row a placement, numbered as it was read, with the first limit that it breaks."""
    table = wide_table("placement", "seconds", "device peak", "host", "fits")
    for number, priced in enumerate(prices, 1):
        more = f"; {len(priced.violations) - 1} more" if len(priced.violations) > 1 else ""
        table.add_row(
            str(number),
            f"{priced.seconds:.4g}",
            for_people(max(max(ranks) for ranks in priced.device_bytes)),
            for_people(max(priced.host_bytes.values())),
            "yes" if priced.feasible else f"no: {priced.violations[0].message}{more}",
        )
    return table


def placements_of(record: CalibrationRecord, source: str) -> list[Placement]:
    """The placements of a JSON-lines file. Raises `ContractError` naming the line; empty lines do not count."""
    name = "standard input" if source == "-" else source
    found = []
    known = {component.name for component in record.components}
    for number, line in enumerate(_text_of(source, name).split("\n"), 1):
        if not line.strip():
            continue
        where = f"{name}, line {number}"
        try:
            data = parse_json(line)
        except (ValueError, RecursionError) as error:
            raise ContractError(f"{where}: is not JSON ({error}); write each placement on one line") from None
        if isinstance(data, dict) and data.get("kind") == "Plan":
            placement = placement_of(Plan.from_json(data, source=where), where)
        else:
            placement = Placement.from_json(data, source=where)
        for entry in placement.components:
            if entry.name not in known:
                raise ContractError(
                    f"{where}: component {entry.name} is not in the record, which has {', '.join(sorted(known))}"
                )
        found.append(placement)
    return found


def _text_of(source: str, name: str) -> str:
    try:
        if source != "-":
            return Path(source).read_text(encoding="utf-8")
        if sys.stdin is None:  # it was closed by whoever started this process
            raise ContractError(f"{name} is closed; give a file with one placement a line")
        return sys.stdin.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ContractError(f"{name}: cannot be read ({reason}); give a file with one placement a line") from None
