"""Measuring: one watched request, the link, and the record that they make. It knows no placement and no plan."""

from stowplan_agent.calibration.errors import CalibrationError
from stowplan_agent.calibration.extrapolation import Sample, extrapolate
from stowplan_agent.calibration.link import measure_link
from stowplan_agent.calibration.observation import Observation, observe
from stowplan_agent.calibration.record import Machine, build_record
from stowplan_agent.calibration.watch import Watch

__all__ = [
    "CalibrationError",
    "Machine",
    "Observation",
    "Sample",
    "Watch",
    "build_record",
    "extrapolate",
    "measure_link",
    "observe",
]
