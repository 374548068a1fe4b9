"""``stowplan cost``: the price of placements, one JSON line for each."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from stowplan_agent.cli.output import user_errors
from stowplan_agent.cli.plan import DeviceMemory, HostMemory, on_machine
from stowplan_api.model import ContractError
from stowplan_api.placement import Placement
from stowplan_api.record import CalibrationRecord


def cost(
    record: Annotated[Path, typer.Argument(help="A CalibrationRecord, as JSON.")],
    placements: Annotated[str, typer.Argument(help="A file with one placement a line, as JSON; - for standard input.")],
    device_memory: DeviceMemory = None,
    host_memory: HostMemory = None,
) -> None:
    """Price placements: seconds of a request, device and host bytes, and every limit that is broken."""
    from stowplan_agent.planning import cost as price

    with user_errors(ContractError):
        measured = on_machine(CalibrationRecord.read(record), device_memory, host_memory)
        # All lines are read before the first is priced: a bad one leaves no half of an answer behind.
        read = placements_of(measured, placements)
    for placement in read:
        print(json.dumps(price(measured, placement).to_json(), ensure_ascii=False))


def placements_of(record: CalibrationRecord, source: str) -> list[Placement]:
    """The placements of a JSON-lines file. Raises `ContractError` naming the line; empty lines do not count."""
    if source == "-":
        text = sys.stdin.read()
    else:
        try:
            text = Path(source).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ContractError(f"{source}: cannot be read ({error}); give a file with one placement a line") from None
    found = []
    known = {component.name for component in record.components}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        where = f"{'standard input' if source == '-' else source}, line {number}"
        try:
            data = json.loads(line)
        except ValueError as error:
            raise ContractError(f"{where}: is not JSON ({error}); write each placement on one line") from None
        placement = Placement.from_json(data, source=where)
        for entry in placement.components:
            if entry.name not in known:
                raise ContractError(
                    f"{where}: component {entry.name} is not in the record, which has {', '.join(sorted(known))}"
                )
        found.append(placement)
    return found
