"""One host copy a node: buffers in memory that all ranks map, filled once by all of them, and gone with the last."""

from stowplan_agent.ranks.store.node_store import NodeStore
from stowplan_agent.ranks.store.shared_buffer import SharedBuffer

__all__ = ["NodeStore", "SharedBuffer"]
