"""Ranks as processes: started together, watched, and ended together with one message."""

from stowplan_agent.ranks.supervision.endings import Ending, signal_name
from stowplan_agent.ranks.supervision.fleet import Fleet
from stowplan_agent.ranks.supervision.supervisor import Supervisor

__all__ = ["Ending", "Fleet", "Supervisor", "signal_name"]
