"""``stowplan inventory``: what a checkpoint holds and needs, before a weight of it is read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from stowplan_agent.cli.output import INFEASIBLE, Output, fail, out, print_json, user_errors, wide_table
from stowplan_agent.inventory import (
    Cap,
    HostLimits,
    Inventory,
    InventoryError,
    Need,
    check_classes,
    check_dtype,
    counted,
    diffusers_classes,
    predict_need,
    read_checkpoint,
    read_host_limits,
    refusal,
)
from stowplan_api.host_reserve import host_reserve
from stowplan_api.quantity import for_people, parse_quantity


def inventory(
    path: Annotated[Path, typer.Argument(help="Folder of a checkpoint in diffusers' layout.")],
    dtype: Annotated[str, typer.Option(help="Precision to load in: bfloat16, float16 or float32.")] = "bfloat16",
    device_memory: Annotated[
        str | None, typer.Option(help="Judge it for a device with so much free memory, e.g. 24Gi.")
    ] = None,
    host_memory: Annotated[
        str | None, typer.Option(help="Judge it for a pod with this memory limit; else the limits of this process.")
    ] = None,
    headers_only: Annotated[
        bool, typer.Option("--headers-only", help="Do not build the modules: no torch, names as in the files.")
    ] = False,
    output: Annotated[Output, typer.Option(help="table or json.")] = Output.TABLE,
) -> None:
    """Show components, repeated layers and bytes of a checkpoint, and what it needs. Reads headers and configs only.

    Exits 3, with the limit named, where no placement can fit.
    """
    with user_errors(InventoryError):
        check_dtype(dtype)
        checkpoint = read_checkpoint(path)
        if (known := diffusers_classes()) is not None:
            check_classes(checkpoint, known)
        found, note = counted(checkpoint, dtype, headers_only=headers_only)
        host = _host(host_memory)
        device = _bytes("--device-memory", device_memory) if device_memory is not None else None
    need = predict_need(found)
    problem = None
    if device is not None:
        problem = refusal(need, device_bytes=device, device=f"a device of {for_people(device)}", host=host)
    if output is Output.JSON:
        print_json(_as_json(found, need, host, device, problem, note))
    else:
        out.print(_as_table(found))
        for line in [*_lines(found, need, host, device), *([note] if note else [])]:
            out.print(line, soft_wrap=True)
    if problem is not None:
        fail(problem, INFEASIBLE)


def _host(stated: str | None) -> HostLimits:
    if stated is None:
        return read_host_limits()
    return HostLimits((Cap("--host-memory", _bytes("--host-memory", stated), 0),))


def _bytes(flag: str, text: str) -> int:
    try:
        return parse_quantity(text)
    except ValueError as error:
        raise InventoryError(f"{flag}: {error}") from None


def _as_json(
    found: Inventory, need: Need, host: HostLimits, device: int | None, problem: str | None, note: str | None
) -> dict[str, Any]:
    return {
        "model": found.model,
        "pipeline": found.pipeline,
        "fingerprint": found.fingerprint,
        "dtype": found.dtype,
        "totalBytes": found.total_bytes,
        **({"note": note} if note else {}),
        "components": [
            {
                "name": part.name,
                "class": part.class_name,
                "library": part.library,
                "diskBytes": part.disk_bytes,
                "totalBytes": part.total_bytes,
                "tensorBytes": part.tensor_bytes,
                "looseBytes": part.loose_bytes,
                "bufferBytes": part.buffer_bytes,
                "unusedDiskBytes": part.unused_bytes,
                "dtypeBytes": dict(part.dtype_bytes),
                "tied": list(part.tied),
                "groups": [{"name": group.name, "layerBytes": list(group.layer_bytes)} for group in part.groups],
            }
            for part in found.components
        ],
        "need": {
            "leastDeviceBytes": need.largest.least,
            "leastDeviceComponent": need.largest.name,
            **({} if device is None else {"deviceBytes": device, "leastHostBytes": need.host_bytes(device)}),
        },
        "host": {
            "limit": host.decided_by,
            "limitBytes": host.tightest.limit,
            "usedBytes": host.tightest.used,
            "headroomBytes": host.headroom,
            "reserveBytes": host_reserve(host.tightest.limit),
            "pinBudgetBytes": host.pin_budget(),
        },
        "refusal": problem,
    }


def _as_table(found: Inventory) -> Table:
    sizes = ("loose", "on disk", "loaded")
    table = wide_table("component", "class", "layers", *sizes, right=sizes, title=found.model)
    for part in found.components:
        layers = ", ".join(
            f"{group.name} {len(group.layer_bytes)} x {for_people(max(group.layer_bytes))}" for group in part.groups
        )
        table.add_row(
            part.name,
            part.class_name,
            layers or "-",
            for_people(part.loose_bytes),
            for_people(part.disk_bytes),
            for_people(part.total_bytes),
        )
    return table


def _lines(found: Inventory, need: Need, host: HostLimits, device: int | None) -> list[str]:
    least = need.largest
    limit, reserve = host.tightest.limit, host_reserve(host.tightest.limit)
    lines = [
        f"{found.pipeline}: {for_people(found.total_bytes)} of weights in {found.dtype}; {found.fingerprint}",
        f"device: at least {for_people(least.least)} for weights, when {least.name} runs with all layers streamed; "
        f"{for_people(need.total)} to keep everything; activations come on top",
        f"host: {for_people(host.headroom)} are free under {host.decided_by} ({for_people(limit)}); less a reserve of "
        f"{for_people(reserve)}, {for_people(host.pin_budget())} for host copies",
    ]
    if device is not None:
        lines.append(
            f"host copies beside a device of {for_people(device)}: at least {for_people(need.host_bytes(device))}"
        )
    return lines
