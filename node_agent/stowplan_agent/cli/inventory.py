"""``stowplan inventory``: what a checkpoint holds, from its headers alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from stowplan_agent.cli.output import Output, out, print_json, user_errors, wide_table
from stowplan_agent.inventory import (
    Inventory,
    InventoryError,
    check_classes,
    check_dtype,
    diffusers_classes,
    read_checkpoint,
    take_inventory,
)
from stowplan_api.quantity import for_people


def inventory(
    path: Annotated[Path, typer.Argument(help="Folder of a checkpoint in diffusers' layout.")],
    dtype: Annotated[str, typer.Option(help="Precision to load in: bfloat16, float16 or float32.")] = "bfloat16",
    output: Annotated[Output, typer.Option(help="table or json.")] = Output.TABLE,
) -> None:
    """Show components, repeated layers and bytes of a checkpoint. Reads headers and configs, not weights.

    Groups of layers have the names of the files; a record and a placement have those of the loaded model, which
    transformers changes for some models.
    """
    with user_errors(InventoryError):
        check_dtype(dtype)
        checkpoint = read_checkpoint(path)
        if (known := diffusers_classes()) is not None:
            check_classes(checkpoint, known)
        found = take_inventory(checkpoint, dtype)
    if output is Output.JSON:
        print_json(_as_json(found))
    else:
        out.print(_as_table(found))
        weights = f"{for_people(found.total_bytes)} of weights in {found.dtype}"
        out.print(f"{found.pipeline}: {weights}; {found.fingerprint}", soft_wrap=True)


def _as_json(found: Inventory) -> dict[str, object]:
    return {
        "model": found.model,
        "pipeline": found.pipeline,
        "fingerprint": found.fingerprint,
        "dtype": found.dtype,
        "totalBytes": found.total_bytes,
        "components": [
            {
                "name": part.name,
                "class": part.class_name,
                "library": part.library,
                "diskBytes": part.disk_bytes,
                "totalBytes": part.total_bytes,
                "looseBytes": part.loose_bytes,
                "groups": [{"name": group.name, "layerBytes": list(group.layer_bytes)} for group in part.groups],
            }
            for part in found.components
        ],
    }


def _as_table(found: Inventory) -> Table:
    sizes = ("loose", "on disk", "loaded")
    table = wide_table("component", "class", "layers, as named in the files", *sizes, right=sizes, title=found.model)
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
