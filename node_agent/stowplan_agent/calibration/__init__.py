"""Measuring: one watched request, the link, and the record that they make. It knows no placement and no plan."""

from stowplan_agent.calibration.adaptive import disagreeing, marked
from stowplan_agent.calibration.answers import Answers
from stowplan_agent.calibration.errors import CalibrationError
from stowplan_agent.calibration.extrapolation import Sample, extrapolate
from stowplan_agent.calibration.foresight import Extent, at_least
from stowplan_agent.calibration.link import measure_link
from stowplan_agent.calibration.observation import Observation, observe, with_fragmentation
from stowplan_agent.calibration.record import Machine, build_record
from stowplan_agent.calibration.rehearsal import Rehearsal
from stowplan_agent.calibration.schedule import at_target
from stowplan_agent.calibration.watch import Watch

__all__ = [
    "Answers",
    "CalibrationError",
    "Extent",
    "Machine",
    "Observation",
    "Rehearsal",
    "Sample",
    "Watch",
    "at_least",
    "at_target",
    "build_record",
    "disagreeing",
    "extrapolate",
    "marked",
    "measure_link",
    "observe",
    "with_fragmentation",
]
