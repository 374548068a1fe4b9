"""What a record does not allow about an entry of a placement, in sentences. How it is priced all the same: `layout`."""

from __future__ import annotations

from stowplan_api.placement import ComponentPlacement, GroupPlacement
from stowplan_api.record import Component


def entry_problems(
    component: Component, entry: ComponentPlacement | None, ranks: int, *, peers: bool = False
) -> list[str]:
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
        problems += _group_problems(component, entry, ranks, peers=peers)
    return problems


def _group_problems(component: Component, entry: ComponentPlacement, ranks: int, *, peers: bool) -> list[str]:
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
        sharded, most = choice.sharded_layers or 0, layers - choice.resident_layers
        if sharded and (problem := _shard_problem(sharded, most, choice, peers=peers)):
            problems.append(f"{where}: {problem}")
            continue
        copies = layers if choice.lifetime == "Forward" else most - sharded
        problems += _pin_problems(where, "pinnedLayers", choice.pinned_layers, copies, ranks)
    return problems


def _shard_problem(sharded: int, most: int, choice: GroupPlacement, *, peers: bool) -> str | None:
    if not peers:
        return "shardedLayers needs peer access between several ranks of one node, which this record has not"
    if choice.lifetime == "Forward":
        return "shardedLayers stay on the device for good, so its lifetime must be Permanent, not Forward"
    if sharded > most:
        return f"{sharded} shardedLayers of the {most} layers that are not resident"
    return None


def _pin_problems(where: str, field: str, pins: tuple[int, ...], most: int, ranks: int) -> list[str]:
    if len(pins) != ranks:
        return [f"{where}: {field} has {len(pins)} entries; give {ranks}, one count for each rank"]
    return [
        f"{where}: {field} of rank {rank} is {count}, of {most} that keep a host copy"
        for rank, count in enumerate(pins)
        if count > most
    ]
