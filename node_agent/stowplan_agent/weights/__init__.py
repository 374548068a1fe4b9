"""The weights engine: it puts the weights of a pipeline where a placement says, and keeps every forward pass valid.

It does not know why it is asked. `WeightsEngine` is the whole surface; everything else here is a part of it.
"""

from stowplan_agent.weights.adoption import AdoptionError
from stowplan_agent.weights.engine import WeightsEngine
from stowplan_agent.weights.entry import EntryError
from stowplan_agent.weights.headroom import RewriteError
from stowplan_agent.weights.ledger import Ledger, LedgerError
from stowplan_agent.weights.observer import Observer
from stowplan_agent.weights.timeline import Timeline

__all__ = [
    "AdoptionError",
    "EntryError",
    "Ledger",
    "LedgerError",
    "Observer",
    "RewriteError",
    "Timeline",
    "WeightsEngine",
]
