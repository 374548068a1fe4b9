"""What an entry of a placement means for a component's units, and whether the component can have it at all.

Pure: nothing moves here. An entry that does not suit the component as it was loaded is refused by name before anything
does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from stowplan_agent.weights.unit import Unit
from stowplan_api.placement import (
    ComponentPlacement,
    GroupPlacement,
    Lifetime,
    Placement,
    sharded_layers,
    streamed_layers,
)
from stowplan_api.record import Component

Seed = Callable[[Sequence[Component]], Placement]
"""Where components that have just been found are to be loaded to."""


def everything_on_the_host(components: Sequence[Component]) -> Placement:
    """Pageable host memory, and the whole component on the device while it runs; fixed ones where they must be."""
    modes = {part.name: part.fixed.mode if part.fixed else "Offload" for part in components}
    return Placement(components=tuple(ComponentPlacement(name=name, mode=mode) for name, mode in modes.items()))


class EntryError(ValueError):
    """An entry that a component cannot have. The message names the component and says what it can have."""


@dataclass(frozen=True)
class Roles:
    """The part that each unit plays under one entry, on one rank."""

    permanent: tuple[Unit, ...]
    """On the device for good."""
    visiting: tuple[Unit, ...]
    """On the device in the component's own intervals."""
    sharded: tuple[Unit, ...]
    """In shards on the devices of all ranks, without empty ones."""
    rings: tuple[tuple[tuple[Unit, ...], int], ...]
    """For each group its streamed and sharded units in running order, without empty ones, and its number of slots."""
    pinned: frozenset[Unit]
    """Units whose host copy is locked: of an Offload component the first that fit its share, of a group the first that
    it counts, streamed ones before resident ones."""


def roles_of(entry: ComponentPlacement, loose: Unit, groups: Mapping[str, Sequence[Unit]], rank: int) -> Roles:
    """The roles of a component's units under an entry that `check_entry` accepts."""
    if entry.mode != "Layerwise":
        units = (loose, *(unit for layers in groups.values() for unit in layers))
        share = entry.pinned_bytes[rank] if entry.pinned_bytes else 0
        resident = entry.mode == "Resident"
        return Roles(units if resident else (), () if resident else units, (), (), frozenset(_fitting(units, share)))
    held: dict[Lifetime, list[Unit]] = {"Permanent": [], "Forward": []}
    held[entry.loose_lifetime or "Permanent"].append(loose)
    placed = {group.name: group for group in entry.groups or ()}
    rings = []
    pinned: list[Unit] = []
    sharded: list[Unit] = []
    for name, layers in groups.items():
        group = placed[name]
        resident_count, shards = group.resident_layers, group.sharded_layers or 0
        in_shards = set(sharded_layers(len(layers), resident_count, shards, group.policy))
        from_host = set(streamed_layers(len(layers), resident_count + shards, group.policy))
        streamed = [unit for index, unit in enumerate(layers) if index in from_host]
        passing = [unit for index, unit in enumerate(layers) if index in from_host | in_shards]
        resident_units = [unit for index, unit in enumerate(layers) if index not in from_host | in_shards]
        held[group.lifetime] += resident_units
        sharded += [unit for index, unit in enumerate(layers) if index in in_shards and unit.nbytes]
        rings.append((tuple(unit for unit in passing if unit.nbytes), group.slots))
        keeping = streamed + (resident_units if group.lifetime == "Forward" else [])
        pinned += keeping[: group.pinned_layers[rank]]
    return Roles(tuple(held["Permanent"]), tuple(held["Forward"]), tuple(sharded), tuple(rings), frozenset(pinned))


def check_entry(
    entry: ComponentPlacement, layers: Mapping[str, int], nbytes: int, rank: int, *, shards: bool = False
) -> None:
    """Compare an entry with a component's groups (name to number of layers) and bytes, for one rank.

    ``shards``: whether there are other ranks whose devices this rank's has access to.
    Raises `EntryError`: a count out of range is refused, never clamped (PLANNING.md, small print).
    """
    where = f"component {entry.name}"
    if entry.pinned_bytes is not None:
        _check_count(f"{where}: pinnedBytes", entry.pinned_bytes, rank, nbytes)
    if entry.mode != "Layerwise":
        return
    named = {group.name for group in entry.groups or ()}
    if named != set(layers):
        known = ", ".join(sorted(layers)) or "no groups of layers"
        raise EntryError(f"{where}: the entry has groups {', '.join(sorted(named))}; the component has {known}")
    for group in entry.groups or ():
        _check_group(f"{where}, group {group.name}", group, layers[group.name], rank, shards=shards)


def _fitting(units: Sequence[Unit], share: int) -> Iterator[Unit]:
    for unit in units:
        share -= unit.nbytes
        if share < 0:
            return
        yield unit


def _check_group(where: str, group: GroupPlacement, layers: int, rank: int, *, shards: bool) -> None:
    if group.resident_layers > layers:
        raise EntryError(f"{where}: {group.resident_layers} residentLayers of {layers} layers; give 0 to {layers}")
    if group.sharded_layers:
        most = layers - group.resident_layers
        if not shards:
            raise EntryError(f"{where}: shardedLayers needs several ranks with peer access; leave it out")
        if group.lifetime == "Forward":
            raise EntryError(f"{where}: shardedLayers are there for good, and the lifetime is Forward; give Permanent")
        if group.sharded_layers > most:
            raise EntryError(
                f"{where}: {group.sharded_layers} shardedLayers beside {group.resident_layers} residentLayers of "
                f"{layers} layers; give 0 to {most}"
            )
    keeping = layers if group.lifetime == "Forward" else layers - group.resident_layers - (group.sharded_layers or 0)
    _check_count(f"{where}: pinnedLayers", group.pinned_layers, rank, keeping)


def _check_count(where: str, counts: tuple[int, ...], rank: int, most: int) -> None:
    if rank >= len(counts):
        raise EntryError(f"{where} has {len(counts)} numbers; rank {rank} needs one of its own")
    if counts[rank] > most:
        raise EntryError(f"{where} of rank {rank} is {counts[rank]}; at most {most} keep a host copy")
