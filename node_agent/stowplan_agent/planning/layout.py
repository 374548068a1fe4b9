"""What one entry of a placement puts where, for one component: bytes only, no seconds.

This is the table of PLANNING.md, section 2, with the small print of section 3. `layout_of` answers for any entry,
also for one that is not allowed (`entry_problems` says what is wrong with it), because a placement out of range is
reported, never clamped in silence, and is priced all the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from stowplan_api.placement import ComponentPlacement, GroupPlacement, streamed_layers
from stowplan_api.record import Component, Group


@dataclass(frozen=True, slots=True)
class Ring:
    """The streamed layers of one group and the ring that they go through."""

    group: str
    streamed: tuple[int, ...]
    slots: int
    pinned: tuple[int, ...]
    """How many of the streamed layers are pinned, the first ones in running order; one number a rank."""


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
    """Bytes of host copies, locked ones included."""
    locked: tuple[int, ...]
    loads: tuple[tuple[int, int], ...]
    """Pinned and pageable bytes to bring in before the first pass of an own interval."""
    rings: tuple[Ring, ...]


def layout_of(component: Component, entry: ComponentPlacement | None, ranks: int) -> Layout:
    """The layout of ``component`` under ``entry`` on each of ``ranks`` ranks.

    What is not allowed is laid out as follows, so that it has a price: a missing entry as Resident; a group without an
    entry as nothing resident, two slots, nothing pinned; more resident layers than the group has as all of them; pins
    beyond what has a host copy as given for ``pinnedBytes`` and as all for ``pinnedLayers``; a missing pin count as 0.
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
            host=tuple(max(total, bytes_) for bytes_ in pinned),
            locked=pinned,
            loads=tuple((bytes_, max(total - bytes_, 0)) for bytes_ in pinned),
            rings=(),
        )
    return _layerwise(component, entry, ranks)


def _layerwise(component: Component, entry: ComponentPlacement, ranks: int) -> Layout:
    entries = {group.name: group for group in entry.groups or ()}
    loose_forward = entry.loose_lifetime == "Forward"
    always = 0 if loose_forward else component.loose_bytes
    own = host = component.loose_bytes if loose_forward else 0
    locked = [0] * ranks
    pinned_load = [0] * ranks
    load = own
    rings = []
    for group in component.groups:
        placed = entries.get(group.name) or _streamed(group.name, ranks)
        streamed = _streamed_of(group, placed)
        resident = _resident_of(group, streamed)
        resident_bytes = sum(group.layer_bytes[layer] for layer in resident)
        forward = placed.lifetime == "Forward"
        own += placed.slots * max((group.layer_bytes[layer] for layer in streamed), default=0)
        host += sum(group.layer_bytes[layer] for layer in streamed)
        if forward:
            own, host, load = own + resident_bytes, host + resident_bytes, load + resident_bytes
        else:
            always += resident_bytes
        copies = streamed + resident if forward else streamed
        pins = _a_rank(placed.pinned_layers, ranks)
        for rank, count in enumerate(pins):
            locked[rank] += sum(group.layer_bytes[layer] for layer in copies[:count])
            pinned_load[rank] += sum(group.layer_bytes[layer] for layer in copies[len(streamed) : count])
        rings.append(Ring(group.name, streamed, placed.slots, tuple(min(count, len(streamed)) for count in pins)))
    loads = tuple((pinned, load - pinned) for pinned in pinned_load)
    return Layout(always, own, False, (host,) * ranks, tuple(locked), loads, tuple(rings))


def entry_problems(component: Component, entry: ComponentPlacement | None, ranks: int) -> list[str]:
    """What the record does not allow about an entry, one sentence each; empty for an entry that is allowed."""
    name = component.name
    if entry is None:
        return [f"component {name} has no entry; a placement says where every component is"]
    problems = []
    if component.fixed is not None and entry.mode != component.fixed.mode:
        problems.append(
            f"component {name} must stay {component.fixed.mode} ({component.fixed.reason}), not {entry.mode}"
        )
    if entry.mode == "Offload" and entry.pinned_bytes is not None:
        problems += _pin_problems(
            f"component {name}", "pinnedBytes", entry.pinned_bytes, component.total_bytes(), ranks
        )
    if entry.mode == "Layerwise":
        problems += _group_problems(component, entry, ranks)
    return problems


def _group_problems(component: Component, entry: ComponentPlacement, ranks: int) -> list[str]:
    known = {group.name: group for group in component.groups}
    if not known:
        return [f"component {component.name} has no repeated layers, so it cannot be Layerwise"]
    problems = []
    placed = {group.name: group for group in entry.groups or ()}
    for name in (one for one in known if one not in placed):
        problems.append(f"component {component.name} has no entry for its group {name}")
    for name, choice in placed.items():
        where = f"group {name} of component {component.name}"
        if name not in known:
            problems.append(f"{where} is not in the record, which has {', '.join(sorted(known))}")
            continue
        layers = len(known[name].layer_bytes)
        if choice.resident_layers > layers:
            problems.append(f"{where}: {choice.resident_layers} residentLayers of {layers} layers")
            continue
        copies = layers if choice.lifetime == "Forward" else layers - choice.resident_layers
        problems += _pin_problems(where, "pinnedLayers", choice.pinned_layers, copies, ranks)
        if choice.sharded_layers:
            problems.append(f"{where}: shardedLayers needs peer access between ranks, which this record has not")
    return problems


def _pin_problems(where: str, field: str, pins: tuple[int, ...], most: int, ranks: int) -> list[str]:
    if len(pins) != ranks:
        return [f"{where}: {field} has {len(pins)} entries; give {ranks}, one count for each rank"]
    return [
        f"{where}: {field} of rank {rank} is {count}, of {most} that keep a host copy"
        for rank, count in enumerate(pins)
        if count > most
    ]


def _streamed(name: str, ranks: int) -> GroupPlacement:
    return GroupPlacement(name=name, resident_layers=0, pinned_layers=(0,) * ranks)


def _streamed_of(group: Group, placed: GroupPlacement) -> tuple[int, ...]:
    layers = len(group.layer_bytes)
    return streamed_layers(layers, min(placed.resident_layers, layers), placed.policy)


def _resident_of(group: Group, streamed: tuple[int, ...]) -> tuple[int, ...]:
    gone = set(streamed)
    return tuple(layer for layer in range(len(group.layer_bytes)) if layer not in gone)


def _a_rank(counts: tuple[int, ...] | None, ranks: int) -> tuple[int, ...]:
    given = counts or ()
    return tuple(given[rank] if rank < len(given) else 0 for rank in range(ranks))
