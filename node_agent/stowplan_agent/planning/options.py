"""What a Layerwise entry is made of: how each group is streamed, and how long what is resident stays.

`table` lists all of it as numbers; here it gets its names back.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from stowplan_api.placement import ComponentPlacement, GroupPlacement, Lifetime, Policy, sharded_layers, streamed_layers
from stowplan_api.record import Component, Group

POLICIES: Final[tuple[Policy, ...]] = ("Leading", "Strided")
LIFETIMES: Final[tuple[Lifetime, ...]] = ("Forward", "Permanent")
SLOTS: Final = (2, 3)


class Stream(NamedTuple):
    """How one group is streamed: what decides the seconds of a pass, apart from pins."""

    resident: int
    policy: Policy
    slots: int
    streamed: tuple[int, ...]
    sharded: tuple[int, ...] = ()


def streams_of(group: Group, *, peers: bool = False) -> list[Stream]:
    """Every different way to stream a group, and with ``peers`` to shard it; of spellings with the same bytes, the
    first in canonical text."""
    layers = len(group.layer_bytes)
    found: dict[tuple[tuple[int, ...], tuple[int, ...], int], Stream] = {}
    for resident in range(layers + 1):
        for sharded in range(layers - resident + 1 if peers else 1):
            for policy in POLICIES:
                streamed = streamed_layers(layers, resident + sharded, policy)
                shards = sharded_layers(layers, resident, sharded, policy) if sharded else ()
                for slots in SLOTS if streamed or shards else SLOTS[:1]:
                    found.setdefault((streamed, shards, slots), Stream(resident, policy, slots, streamed, shards))
    return list(found.values())


class Lives(NamedTuple):
    """How long the loose weights and the resident set of each group stay."""

    loose: Lifetime
    groups: tuple[Lifetime, ...]


def layerwise_entry(
    component: Component, streams: tuple[Stream, ...], lives: Lives, pins: tuple[tuple[int, ...], ...]
) -> ComponentPlacement:
    """The entry; ``pins`` are the pinned layers, group by rank."""
    groups = tuple(
        GroupPlacement(
            name=group.name,
            resident_layers=stream.resident,
            policy=stream.policy,
            lifetime=life,
            slots=stream.slots,
            pinned_layers=pinned,
            sharded_layers=len(stream.sharded) or None,
        )
        for group, stream, life, pinned in zip(component.groups, streams, lives.groups, pins, strict=True)
    )
    return ComponentPlacement(name=component.name, mode="Layerwise", loose_lifetime=lives.loose, groups=groups)


def same_bytes(first: ComponentPlacement, second: ComponentPlacement, component: Component) -> bool:
    """Whether two entries place the same bytes (PLANNING.md, small print): a lifetime of nothing does not count."""
    return _plain(first, component) == _plain(second, component)


def _plain(entry: ComponentPlacement, component: Component) -> ComponentPlacement:
    if entry.mode == "Resident":
        return entry
    if entry.mode == "Offload":
        pinned = entry.pinned_bytes if entry.pinned_bytes and any(entry.pinned_bytes) else None
        return entry.model_copy(update={"prefetch": bool(entry.prefetch), "pinned_bytes": pinned})
    loose = entry.loose_lifetime if component.loose_bytes else None
    groups = tuple(
        group.model_copy(
            update={
                "lifetime": group.lifetime if group.resident_layers else "Permanent",
                "sharded_layers": group.sharded_layers or None,
            }
        )
        for group in sorted(entry.groups or (), key=lambda group: group.name)
    )
    return entry.model_copy(update={"loose_lifetime": loose or "Permanent", "groups": groups})
