"""A change of placement as a transaction: current less target makes moves; apply, judge, roll back."""

from stowplan_agent.transaction.apply import ApplyError, UndoError, apply
from stowplan_agent.transaction.faults import FaultError, Faults, InjectedFault, perturbed
from stowplan_agent.transaction.judgement import Criteria, Finding, Measured, Reference, judge, judge_memory
from stowplan_agent.transaction.moves import difference, ordered
from stowplan_agent.transaction.points import Point, Points
from stowplan_agent.transaction.spread import distance, nearest, strays

__all__ = [
    "ApplyError",
    "Criteria",
    "FaultError",
    "Faults",
    "Finding",
    "InjectedFault",
    "Measured",
    "Point",
    "Points",
    "Reference",
    "UndoError",
    "apply",
    "difference",
    "distance",
    "judge",
    "judge_memory",
    "nearest",
    "ordered",
    "perturbed",
    "strays",
]
