"""What a checkpoint holds and what this machine allows, from files alone: no torch, and no weight is touched."""

from stowplan_agent.inventory.as_loaded import describe_module, inventory_as_loaded
from stowplan_agent.inventory.cgroups import Cap
from stowplan_agent.inventory.checkpoint import Checkpoint, check_classes, diffusers_classes, read_checkpoint
from stowplan_agent.inventory.components import ComponentInventory, GroupInventory, Inventory, take_inventory
from stowplan_agent.inventory.counting import counted
from stowplan_agent.inventory.errors import InventoryError
from stowplan_agent.inventory.fingerprint import fingerprint
from stowplan_agent.inventory.frames import FrameContract, check_shape, frame_contract
from stowplan_agent.inventory.host_limits import HostLimits, read_host_limits
from stowplan_agent.inventory.layers import Group, find_groups, loose_names
from stowplan_agent.inventory.need import Need, check_need, predict_need, refusal
from stowplan_agent.inventory.sources import resolve_source
from stowplan_agent.inventory.stacks import LayerShapes, alike, stacks_of
from stowplan_agent.inventory.tensors import TensorInfo, check_dtype, packed_bytes

__all__ = [
    "Cap",
    "Checkpoint",
    "ComponentInventory",
    "FrameContract",
    "Group",
    "GroupInventory",
    "HostLimits",
    "Inventory",
    "InventoryError",
    "LayerShapes",
    "Need",
    "TensorInfo",
    "alike",
    "check_classes",
    "check_dtype",
    "check_need",
    "check_shape",
    "counted",
    "describe_module",
    "diffusers_classes",
    "find_groups",
    "fingerprint",
    "frame_contract",
    "inventory_as_loaded",
    "loose_names",
    "packed_bytes",
    "predict_need",
    "read_checkpoint",
    "read_host_limits",
    "refusal",
    "resolve_source",
    "stacks_of",
    "take_inventory",
]
