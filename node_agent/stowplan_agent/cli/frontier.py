"""``stowplan frontier``: seconds against device memory, as a table, JSON, a picture or a page."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from stowplan_agent.cli.documents import FileOption, Form, FormOption, deliver, form_of
from stowplan_agent.cli.output import INFEASIBLE, err, out, user_errors
from stowplan_agent.cli.plan import HostMemory, on_machine
from stowplan_agent.report.provenance import estimate_note
from stowplan_api.model import ContractError
from stowplan_api.quantity import MOST, for_people, parse_quantity
from stowplan_api.record import CalibrationRecord

if TYPE_CHECKING:
    from stowplan_agent.report.frontier import Frontier

FEWEST_SIZES: Final = 2
MOST_SIZES: Final = 500


def frontier(
    record: Annotated[Path, typer.Argument(help="A CalibrationRecord, as JSON.")],
    least: Annotated[str | None, typer.Option("--from", help="Smallest size; from where it fits if not given.")] = None,
    most: Annotated[str | None, typer.Option("--to", help="Largest size; the first on which all stays if not.")] = None,
    sizes: Annotated[int, typer.Option(help="How many sizes, 2 to 500, evenly spread.")] = 60,
    device_memory: Annotated[str | None, typer.Option(help="These sizes instead, with commas: 24Gi,48Gi,80Gi.")] = None,
    host_memory: HostMemory = None,
    output: FormOption = None,
    file: FileOption = None,
) -> None:
    """Show which size of device memory is worth its price: seconds of a request, each point proven.

    Exits 3 when no size fits.
    """
    from stowplan_agent.report.frontier import frontier as solve_frontier
    from stowplan_agent.report.sizes import default_range, even_sizes

    form = form_of(output, file, record)
    with user_errors(ContractError):
        measured = on_machine(CalibrationRecord.read(record), None, host_memory)
        if device_memory is not None:
            if least is not None or most is not None:
                raise ContractError("--device-memory names the sizes one by one; give it, or --from and --to, not both")
            asked: tuple[int, ...] = tuple(_size("--device-memory", text) for text in device_memory.split(","))
        else:
            asked = even_sizes(*_range(measured, least, most, default_range), _count(sizes))
    found = solve_frontier(measured, asked, named=device_memory is not None, progress=_say)
    deliver(form, file, lambda: _show(found), lambda: _text(form, found))
    if not found.feasible:
        raise typer.Exit(INFEASIBLE)


def _range(
    record: CalibrationRecord,
    least: str | None,
    most: str | None,
    default: Callable[[CalibrationRecord], tuple[int, int]],
) -> tuple[int, int]:
    low, high = default(record) if least is None or most is None else (0, 0)
    low = _size("--from", least) if least is not None else low
    high = _size("--to", most) if most is not None else high
    if least is not None and most is None:
        high = max(high, 2 * low)
    if low >= high:
        begin, end = for_people(low), for_people(high)
        raise ContractError(f"--from {begin} is not below --to {end}; give a range of sizes, such as 12Gi to 141Gi")
    return low, high


def _count(sizes: int) -> int:
    if not FEWEST_SIZES <= sizes <= MOST_SIZES:
        raise ContractError(f"--sizes {sizes} is outside {FEWEST_SIZES} to {MOST_SIZES}; 60 draw a clear curve")
    return sizes


def _size(flag: str, text: str) -> int:
    try:
        nbytes = parse_quantity(text.strip())
    except ValueError as error:
        raise ContractError(f"{flag}: {error}") from None
    if not 0 < nbytes <= MOST:
        raise ContractError(f"{flag}: {text} is out of range; a device has more than 0 and at most 64Ti of memory")
    return nbytes


def _say(text: str) -> None:
    err.print(text, style="dim", soft_wrap=True)


def _text(form: Form, found: Frontier) -> str:
    """The frontier in a form that a file takes."""
    if form is Form.HTML:
        from stowplan_agent.report.page import page

        return page(found)
    if form is Form.SVG:
        from stowplan_agent.report.curve import curve

        return curve(found) + "\n"
    from stowplan_agent.report.frontier_document import frontier_json

    return json.dumps(frontier_json(found), indent=1, ensure_ascii=False) + "\n"


def _show(found: Frontier) -> None:
    from stowplan_agent.report.frontier_table import frontier_lines, frontier_table

    if note := estimate_note(found.record):
        out.print(note, soft_wrap=True)
    out.print(frontier_table(found))
    for line in frontier_lines(found):
        out.print(line, soft_wrap=True)
