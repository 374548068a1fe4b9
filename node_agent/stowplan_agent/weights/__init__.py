"""The weights engine: it puts the weights of a pipeline where a placement says, and keeps every forward pass valid.

It does not know why it is asked. `WeightsEngine` is the whole surface; everything else here is a part of it:

- What moves: `layout` (where tensors lie in a buffer), `buffers`, `unit` (what moves as one), `keyed_units`,
  `component` (all units and the entry they follow), `fixed` (what must not be moved), `entry` (what an entry means).
- Taking over: `adoption` (which tensor belongs to which unit), `managers`, `loading`.
- While it runs: `hooks`, `calls`, `bypassed`, `timeline`, `ring`, `slots`, `running_order`, `observer`; `neighbours`:
  other ranks.
- Between places: `relocation` (in which order), `device_copies`, `shards` (layers that several ranks hold together).
- Host memory and accounts: `host`, `host_copies`, `locking`, `ledger`, `audit`.
- Changing weights: `rewriting`.
"""

from stowplan_agent.weights.adoption import AdoptionError
from stowplan_agent.weights.engine import WeightsEngine
from stowplan_agent.weights.entry import EntryError
from stowplan_agent.weights.ledger import Ledger, LedgerError
from stowplan_agent.weights.observer import Observer
from stowplan_agent.weights.rewriting.headroom import RewriteError
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
