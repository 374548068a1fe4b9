"""What one entry of a placement puts where, for one component: bytes only, no seconds.

This is the table of PLANNING.md, section 2, with the small print of section 3. `layout_of` answers for any entry,
also for one that is not allowed (`problems` says what is wrong with it), because a placement out of range is
reported, never clamped in silence, and is priced all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stowplan_agent.planning.links import share_sizes
from stowplan_agent.planning.places import places_of, shard_bytes
from stowplan_api.placement import ComponentPlacement, GroupPlacement
from stowplan_api.record import Component


@dataclass(frozen=True, slots=True)
class Ring:
    """The layers of one group that arrive, and the ring that they go through."""

    group: str
    streamed: tuple[int, ...]
    slots: int
    pinned: tuple[int, ...]
    """How many of the streamed layers are pinned, the first ones in running order; one number a rank."""
    sharded: tuple[int, ...] = ()
    """Layers that lie on all ranks, a share on each."""

    @property
    def arriving(self) -> tuple[int, ...]:
        """All layers that pass through it."""
        return self.sharded + self.streamed

    def on(self, rank: int) -> tuple[object, ...]:
        """All that a run on one rank depends on."""
        return (self.group, self.streamed, self.sharded, self.slots, self.pinned[rank])


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the bytes of one component are. Tuples have one entry a rank."""

    always: int
    """Device bytes in every interval."""
    own: int
    """Further device bytes in the component's own intervals."""
    prefetch: bool
    """Whether ``own`` is on the device in the interval before as well."""
    host: tuple[int, ...]
    """Bytes of host copies, locked ones included; with peers this rank's share of the one copy."""
    locked: tuple[int, ...]
    loads: tuple[tuple[int, int], ...]
    """Pinned and pageable bytes to bring in before the first pass of an own interval."""
    rings: tuple[Ring, ...]


def layout_of(component: Component, entry: ComponentPlacement | None, ranks: int, *, peers: bool = False) -> Layout:
    """The layout of ``component`` under ``entry`` on each of ``ranks`` ranks.

    With ``peers`` (section 6) there is one host copy of everything that has one, for all ranks together. Each is
    charged with its share of it, and locks its share of what its pin counts name, so that a sum over ranks counts bytes
    once. A streamed layer that some rank has not pinned is waited for at the pageable rate. ``loads`` are bytes of the
    copy, of which `RankLink.load_seconds` knows how many a rank has locked.

    What is not allowed is laid out as follows, so that it has a price: a missing entry as Resident; a group without an
    entry as nothing resident, two slots, nothing pinned; more resident layers than the group has as all of them; pins
    beyond what has a host copy as given for ``pinnedBytes`` and as all for ``pinnedLayers``; a missing pin count as 0.
    Sharded layers without peers as streamed, more than there are left as all of these, and those of a Forward group as
    sharded for good.
    """
    total = component.total_bytes()
    if entry is None or entry.mode == "Resident":
        nothing = (0,) * ranks
        return Layout(total, 0, False, nothing, nothing, ((0, 0),) * ranks, ())
    if entry.mode == "Offload":
        pinned = _a_rank(entry.pinned_bytes, ranks)
        return Layout(
            always=0,
            own=total,
            prefetch=bool(entry.prefetch),
            host=_held([max(total, bytes_) for bytes_ in pinned], peers=peers),
            locked=_held(pinned, peers=peers),
            loads=tuple((bytes_, max(total - bytes_, 0)) for bytes_ in pinned),
            rings=(),
        )
    return _layerwise(component, entry, ranks, peers=peers)


def _layerwise(component: Component, entry: ComponentPlacement, ranks: int, *, peers: bool) -> Layout:
    entries = {group.name: group for group in entry.groups or ()}
    loose_forward = entry.loose_lifetime == "Forward"
    always = 0 if loose_forward else component.loose_bytes
    own = load = component.loose_bytes if loose_forward else 0
    copied, locked = [own], [list[int]() for _ in range(ranks)]
    pinned_load = [0] * ranks
    rings = []
    for group in component.groups:
        placed = entries.get(group.name) or _streamed(group.name, ranks)
        where, sizes = places_of(group, placed, peers=peers), group.layer_bytes
        resident_bytes = sum(sizes[layer] for layer in where.resident)
        forward = placed.lifetime == "Forward"
        own += placed.slots * max((sizes[layer] for layer in where.arriving), default=0)
        always += shard_bytes(group, where.sharded, ranks)
        if forward:
            own, load = own + resident_bytes, load + resident_bytes
        else:
            always += resident_bytes
        copies, count = where.streamed + where.resident if forward else where.streamed, len(where.streamed)
        copied += [sizes[layer] for layer in copies]
        pins = _a_rank(placed.pinned_layers, ranks)
        for rank, pinned in enumerate(pins):
            locked[rank] += [sizes[layer] for layer in copies[:pinned]]
            pinned_load[rank] += sum(sizes[layer] for layer in copies[count:pinned])
        fast = (min(pins),) * ranks if peers else pins
        rings.append(
            Ring(group.name, where.streamed, placed.slots, tuple(min(one, count) for one in fast), where.sharded)
        )
    return Layout(
        always=always,
        own=own,
        prefetch=False,
        host=_together([copied] * ranks, peers=peers),
        locked=_together(locked, peers=peers),
        loads=tuple((pinned, load - pinned) for pinned in pinned_load),
        rings=tuple(rings),
    )


def _held(nbytes: Sequence[int], *, peers: bool) -> tuple[int, ...]:
    """Of each rank: its part of one copy that is so long, by rank."""
    return _together([[one] for one in nbytes], peers=peers)


def _together(sizes: Sequence[Sequence[int]], *, peers: bool) -> tuple[int, ...]:
    """Of each rank: bytes of these copies, by rank; with peers only its shares of them."""
    if not peers:
        return tuple(map(sum, sizes))
    count = len(sizes)
    return tuple(sum(share_sizes(one, count)[rank] for one in each) for rank, each in enumerate(sizes))


def _streamed(name: str, ranks: int) -> GroupPlacement:
    return GroupPlacement(name=name, resident_layers=0, pinned_layers=(0,) * ranks)


def _a_rank(counts: tuple[int, ...] | None, ranks: int) -> tuple[int, ...]:
    given = counts or ()
    return tuple(given[rank] if rank < len(given) else 0 for rank in range(ranks))
