"""The start of a pod as a state machine: measure, plan, apply, validate; or roll back, and say why."""

from stowplan_agent.lifecycle.errors import RollbackFailed, StartError
from stowplan_agent.lifecycle.phases import SERVING
from stowplan_agent.lifecycle.progress import Progress
from stowplan_agent.lifecycle.settings import StartSettings
from stowplan_agent.lifecycle.startup import Startup

__all__ = ["SERVING", "Progress", "RollbackFailed", "StartError", "StartSettings", "Startup"]
