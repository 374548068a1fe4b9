"""In which of three places each layer of a group is: resident, sharded over the ranks, or streamed (section 6).

Layers that are sharded or streamed arrive: they pass through the ring's slots in running order. What a rank holds of a
sharded layer is its share, in a block of its own; the largest share is charged on every rank, which is at most 256
bytes a layer more than some of them hold, so that all ranks hold the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from stowplan_agent.planning.links import share_sizes
from stowplan_api.placement import GroupPlacement, sharded_layers, streamed_layers
from stowplan_api.record import Group


@dataclass(frozen=True, slots=True)
class Places:
    """Layers of one group by their place, each in running order."""

    resident: tuple[int, ...]
    sharded: tuple[int, ...]
    streamed: tuple[int, ...]

    @property
    def arriving(self) -> tuple[int, ...]:
        """Those that pass through the ring."""
        return self.sharded + self.streamed


def places_of(group: Group, placed: GroupPlacement, *, peers: bool) -> Places:
    """The places of a group's layers. Counts out of range are laid out as `layout.layout_of` says."""
    layers = len(group.layer_bytes)
    resident = min(placed.resident_layers, layers)
    sharded = min(placed.sharded_layers or 0, layers - resident) if peers else 0
    streamed = streamed_layers(layers, resident + sharded, placed.policy)
    cut = sharded_layers(layers, resident, sharded, placed.policy) if sharded else ()
    gone = {*streamed, *cut}
    return Places(tuple(layer for layer in range(layers) if layer not in gone), cut, streamed)


def shard_bytes(group: Group, sharded: tuple[int, ...], ranks: int) -> int:
    """Device bytes that each of ``ranks`` ranks holds of these sharded layers."""
    return sum(max(share_sizes(group.layer_bytes[layer], ranks)) for layer in sharded)
