"""``stowplan estimate``: a plan before any measurement, from a checkpoint's headers and a table of cards."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from stowplan_agent.cli.calibrate import unwritable, write_whole
from stowplan_agent.cli.output import INFEASIBLE, WENT_WRONG, Output, err, fail, print_json, user_errors
from stowplan_agent.cli.plan import HostMemory, on_machine, show, solved
from stowplan_agent.cli.specification import ONE_SHAPE_HELP, parse_shape
from stowplan_agent.report.provenance import estimate_note
from stowplan_api.model import ContractError
from stowplan_api.record import CalibrationRecord, Workload


def estimate(
    path: Annotated[Path, typer.Argument(help="Folder of a checkpoint in diffusers' layout.")],
    card: Annotated[str, typer.Option(help="A card of the table, such as rtx-4090 or l40s.")],
    shape: Annotated[list[str], typer.Option(help=ONE_SHAPE_HELP)],
    prompt_tokens: Annotated[int, typer.Option(help="Tokens of the longest prompt.", min=1, max=1_000_000)] = 512,
    host_memory: HostMemory = None,
    record: Annotated[
        Path | None, typer.Option("--record", "-o", help="Where to write the estimated record, for plan and frontier.")
    ] = None,
    headers_only: Annotated[
        bool, typer.Option("--headers-only", help="Do not build the modules: no torch, names as in the files.")
    ] = False,
    output: Annotated[Output, typer.Option(help="Form of the output.")] = Output.TABLE,
) -> None:
    """ESTIMATE what a request would take on a card that is not here. Nothing is measured; no weight is read.

    Exits 3 when no placement fits.
    """
    from stowplan_agent.estimate.cards import card_named
    from stowplan_agent.inventory import InventoryError

    if record is not None and (problem := unwritable(record)):
        fail(f"{record} cannot be written: {problem}")
    with user_errors(ContractError, InventoryError):
        chosen = card_named(card)
        if len(shape) > 1:
            raise ContractError(f"--shape is given {len(shape)} times; an estimate is of one shape, so run it for each")
        estimated = on_machine(_record(path, card, shape[0], prompt_tokens, headers_only), None, host_memory)
    answer = solved(estimated)
    if record is not None:
        try:
            write_whole(record, json.dumps(estimated.to_json(), indent=1) + "\n")
        except OSError as error:
            fail(f"{record} cannot be written ({error.strerror}); give another --record", WENT_WRONG)
        err.print(f"wrote {record}, an estimate; next: stowplan frontier {quote(str(record))}", soft_wrap=True)
    if output is Output.JSON:
        print_json(
            {
                "kind": "Estimate",
                "estimate": estimate_note(estimated),
                "card": asdict(chosen),
                "record": estimated.to_json(),
                "plan": answer.to_json(),
            }
        )
    else:
        show(estimated, answer)
    if answer.status == "Infeasible":
        raise typer.Exit(INFEASIBLE)


def _record(path: Path, card: str, shape: str, prompt_tokens: int, headers_only: bool) -> CalibrationRecord:
    from pydantic import ValidationError

    from stowplan_agent.estimate.cards import card_named
    from stowplan_agent.estimate.record import estimated_record
    from stowplan_agent.inventory import check_shape, counted, read_checkpoint
    from stowplan_api.model import first_problem

    try:
        fields = parse_shape(shape)
    except ValueError as error:
        raise ContractError(f"--shape: {error}") from None
    checkpoint = read_checkpoint(path)
    check_shape(checkpoint, fields["width"], fields["height"], fields["frames"])
    found, remark = counted(checkpoint, "bfloat16", headers_only=headers_only)
    try:
        workload = Workload(**fields, prompt_tokens=prompt_tokens)
        return estimated_record(checkpoint, found, card_named(card), workload, remark=remark)
    except ValidationError as error:
        raise ContractError(first_problem(error, f"--shape {shape}", "estimate")) from None
