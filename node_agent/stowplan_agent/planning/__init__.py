"""The planner: a record and a placement in, a price out; a record in, the best placement out.

A pure library: no torch, no clock, no files. `cost` is the one cost model (PLANNING.md, section 3); `solve` selects
exactly over the space that its proof states; `moves` orders the way from one placement to another; `seed_placement`
is where to start before anything is measured.
"""

from stowplan_agent.planning.limits import with_device_memory, with_host_memory
from stowplan_agent.planning.moves import moves
from stowplan_agent.planning.price import cost
from stowplan_agent.planning.pricelist import costs
from stowplan_agent.planning.seed import seed_placement
from stowplan_agent.planning.sizes import seconds_by_memory
from stowplan_agent.planning.solver import solve

__all__ = [
    "cost",
    "costs",
    "moves",
    "seconds_by_memory",
    "seed_placement",
    "solve",
    "with_device_memory",
    "with_host_memory",
]
