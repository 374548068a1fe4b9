"""The contract: the values that operator, agent and planner share. No I/O beyond reading a file, no torch."""

from stowplan_api.model import API_VERSION, GROUP, VERSION, ContractError
from stowplan_api.placement import ComponentPlacement, GroupPlacement, Placement
from stowplan_api.plan import Cost, Plan
from stowplan_api.quantity import format_quantity, parse_quantity
from stowplan_api.record import CalibrationRecord

__all__ = [
    "API_VERSION",
    "GROUP",
    "VERSION",
    "CalibrationRecord",
    "ComponentPlacement",
    "ContractError",
    "Cost",
    "GroupPlacement",
    "Placement",
    "Plan",
    "format_quantity",
    "parse_quantity",
]
