"""``stowplan calibrate``: measure a checkpoint on this machine and write its record."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from stowplan_agent.cli.output import (
    WENT_WRONG,
    Output,
    agent_extra,
    err,
    exit_code,
    fail,
    out,
    print_json,
    user_errors,
)
from stowplan_agent.cli.specification import SHAPE_HELP, local_spec
from stowplan_api.model import ContractError
from stowplan_api.quantity import for_people, parse_quantity


def calibrate(
    path: Annotated[Path, typer.Argument(help="Folder of a checkpoint in diffusers' layout.")],
    shape: Annotated[list[str], typer.Option(help=SHAPE_HELP)],
    accelerator: Annotated[str, typer.Option(help="cuda or emulated.")] = "cuda",
    device_memory: Annotated[
        str | None, typer.Option(help="Most device memory to use; the capacity of an emulated card.")
    ] = None,
    device_reserve: Annotated[str | None, typer.Option(help="Device memory that plans leave free.")] = None,
    host_memory: Annotated[str | None, typer.Option(help="Host memory that this process may use.")] = None,
    dtype: Annotated[str, typer.Option(help="bfloat16, float16 or float32.")] = "bfloat16",
    record: Annotated[Path | None, typer.Option("--record", "-o", help="Where to write the record.")] = None,
    output: Annotated[Output, typer.Option(help="table or json.")] = Output.TABLE,
) -> None:
    """Measure one request of each shape and write the record that plans are made from."""
    with agent_extra("calibrate"):
        from stowplan_agent.lifecycle import StartError
        from stowplan_agent.lifecycle.offline import calibrate_offline
        from stowplan_agent.transaction import FaultError

    # A phase that fails is logged, and its sentence is printed below: once is enough.
    logging.basicConfig(level=logging.ERROR)
    # Before minutes of measuring, not after them.
    if record is not None and (problem := unwritable(record)):
        fail(f"{record} cannot be written: {problem}")
    with user_errors(ContractError, FaultError):
        spec = local_spec(
            path,
            shape,
            dtype=dtype,
            device_memory=device_memory,
            device_reserve=device_reserve,
            host_memory=host_memory,
        )
        limit = parse_quantity(host_memory) if host_memory is not None else None
        try:
            measured = calibrate_offline(spec, accelerator, os.environ, memory_limit=limit)
        except StartError as error:
            fail(str(error), exit_code(error.reason))
    if measured.extrapolated:
        err.print(f"extrapolated: {'; '.join(measured.provenance[1:])}", soft_wrap=True)
    if record is not None:
        try:
            write_whole(record, json.dumps(measured.to_json(), indent=1) + "\n")
        except OSError as error:
            fail(f"{record} cannot be written ({error.strerror}); give another --record", WENT_WRONG)
        err.print(f"wrote {record}; next: stowplan plan {quote(str(record))}", soft_wrap=True)
    if output is Output.JSON:
        print_json(measured.to_json())
        return
    from stowplan_agent.report.record import interval_table

    out.print(interval_table(measured))
    total = sum(component.total_bytes() for component in measured.components)
    out.print(f"{measured.model.name}: {for_people(total)} of weights on {measured.ranks[0].device}")


def unwritable(path: Path, *reads: Path | None) -> str | None:
    """Why a file cannot be written there, and what to do; None when it seems that it can.

    ``reads`` are the files that the command reads: a record took minutes of a card, and an answer must not replace it.
    """
    folder = path.absolute().parent
    if not folder.is_dir():
        return f"there is no folder {folder}; make it first"
    if path.is_dir():
        return "it is a folder; give the path of a file"
    if path.is_file() and any(one is not None and one.is_file() and path.samefile(one) for one in reads):
        return "it is a file that this command reads; give another --record"
    # A file is replaced, which its folder must allow; a device or a pipe is written to.
    if not os.access(path if path.exists() and not path.is_file() else folder, os.W_OK):
        return "permission denied; give another --record"
    return None


def write_whole(path: Path, text: str) -> None:
    """Write a file so that it is there whole or as it was before. Raises OSError. Devices and pipes are written to."""
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    target = path.resolve()
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
