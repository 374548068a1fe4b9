"""The best inventory to be had here: as the modules will be where they can be built, by headers in the bare install.

What was counted less exactly than it could be is said in a remark, for whoever reads the numbers.
"""

from __future__ import annotations

from typing import Final

from stowplan_agent.inventory.as_loaded import inventory_as_loaded
from stowplan_agent.inventory.checkpoint import Checkpoint
from stowplan_agent.inventory.components import Inventory, take_inventory
from stowplan_api.quantity import for_people

ASKED: Final = "counted by headers alone, as asked: names are those of the files"
BARE: Final = (
    "counted by headers alone: the bare install has no model classes; for the exact bytes pip install 'stowplan[agent]'"
)


def counted(checkpoint: Checkpoint, dtype: str, *, headers_only: bool = False) -> tuple[Inventory, str | None]:
    """The inventory of ``checkpoint`` in ``dtype``, and what must be said of how it was counted.

    Raises `InventoryError` as `inventory_as_loaded` and `take_inventory` do.
    """
    if headers_only:
        return take_inventory(checkpoint, dtype), ASKED
    try:
        found = inventory_as_loaded(checkpoint, dtype)
    except ModuleNotFoundError:
        return take_inventory(checkpoint, dtype), BARE
    remarks = [
        f"{part.name} is counted by headers alone: {part.uncertain}" for part in found.components if part.uncertain
    ] + [
        f"{for_people(part.unused_bytes)} of the files of {part.name} are not taken by {part.class_name}"
        for part in found.components
        if part.unused_bytes
    ]
    return found, "; ".join(remarks) or None
