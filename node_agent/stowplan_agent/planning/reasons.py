"""Why each component is where it is: the option it lost, and the bytes or seconds that decided.

An option is judged with all other components as the plan has them. A faster one was forbidden by a limit, and the
plan says which and by how many bytes; a slower one would have cost seconds.
"""

from __future__ import annotations

from collections.abc import Sequence

from stowplan_agent.planning.assembly import limits_of
from stowplan_agent.planning.frontier import TOLERANCE, Frontier, option_of
from stowplan_agent.planning.layout import layout_of
from stowplan_agent.planning.options import Option
from stowplan_agent.planning.price import cost, held_bytes, interval_name
from stowplan_agent.planning.timeline import Timeline
from stowplan_api.placement import ComponentPlacement, Placement
from stowplan_api.plan import Explanation, Violation
from stowplan_api.quantity import for_people
from stowplan_api.record import CalibrationRecord, Component


def in_words(component: Component, entry: ComponentPlacement) -> str:
    """An entry for people."""
    if entry.mode == "Resident":
        return f"Resident: all {for_people(component.total_bytes())} always on the device"
    if entry.mode == "Offload":
        pins = ", ".join(for_people(pinned) for pinned in entry.pinned_bytes or ()) or "nothing"
        early = ", from the interval before" if entry.prefetch else ""
        return f"Offload: {for_people(component.total_bytes())} brought in to run{early}, {pins} of it pinned"
    groups = {group.name: len(group.layer_bytes) for group in component.groups}
    parts = []
    for group in entry.groups or ():
        kept = "for good" if group.lifetime == "Permanent" else "while it runs"
        resident = f"{group.resident_layers} of {groups.get(group.name, 0)} {group.name} resident"
        parts.append(f"{resident} {kept}" if group.resident_layers else resident)
    return f"Layerwise: {', '.join(parts)}"


def explanations(
    record: CalibrationRecord,
    timeline: Timeline,
    frontiers: Sequence[Frontier],
    placement: Placement,
    request_seconds: float,
) -> tuple[Explanation, ...]:
    """One explanation a component, in the record's order. Options that tie with the chosen one are not lost ones."""
    return tuple(_explain(record, timeline, frontier, placement, request_seconds) for frontier in frontiers)


def _explain(
    record: CalibrationRecord, timeline: Timeline, frontier: Frontier, placement: Placement, request_seconds: float
) -> Explanation:
    component = frontier.component
    entry = placement.entry(component.name)
    chosen = option_of(frontier.visits, entry)
    words = in_words(component, entry)
    if component.fixed is not None:
        because = f"it must stay {component.fixed.mode}: {component.fixed.reason}"
        return Explanation(component=component.name, chosen=words, because=because)
    least = chosen.seconds - 2 * TOLERANCE * request_seconds
    faster = [one for one in frontier.options if _seconds(one, frontier) < least]
    if faster:
        nearest = min(
            faster, key=lambda one: (_short(record, timeline, placement, component, one), one.seconds, one.text)
        )
        return _forbidden(record, placement, component, words, chosen, nearest, frontier)
    slower = [one for one in frontier.options if one.layout != chosen.layout and not one.elastic]
    if not slower:
        return Explanation(component=component.name, chosen=words, because="it takes the least time it can")
    nearest = min(slower, key=lambda one: (one.seconds, one.text))
    lost = max(nearest.seconds - chosen.seconds, 0.0)
    because = f"nothing is faster and this fits; the other would cost {lost:.6g} s a request more"
    return Explanation(component=component.name, chosen=words, lost=in_words(component, nearest.entry), because=because)


def _seconds(option: Option, frontier: Frontier) -> float:
    """Seconds of an option; of an elastic one with everything pinned."""
    return option_of(frontier.visits, _full(option, frontier)).seconds if option.elastic else option.seconds


def _full(option: Option, frontier: Frontier) -> ComponentPlacement:
    total = frontier.component.total_bytes()
    return option.entry.model_copy(update={"pinned_bytes": (total,) * len(frontier.visits.link_of)})


def _short(
    record: CalibrationRecord, timeline: Timeline, placement: Placement, component: Component, option: Option
) -> int:
    """Bytes that the option is short of, all limits together, with the other components as placed."""
    ranks = len(record.ranks)
    limits = limits_of(record)
    others = [
        (one.name, layout_of(one, placement.entry(one.name), ranks))
        for one in record.components
        if one.name != component.name
    ] + [(component.name, option.layout)]
    short = 0
    for interval, room in enumerate(limits.room):
        held = sum(held_bytes(layout, timeline, name, interval) for name, layout in others)
        short = max(short, held - room)
    for index, node in enumerate(record.nodes):
        here = [rank for rank, described in enumerate(record.ranks) if described.node == node.name]
        short = max(short, sum(layout.host[r] for _, layout in others for r in here) - limits.host[index])
        short = max(short, sum(layout.locked[r] for _, layout in others for r in here) - limits.pinnable[index])
    return max(short, 0)


def _forbidden(
    record: CalibrationRecord,
    placement: Placement,
    component: Component,
    words: str,
    chosen: Option,
    lost: Option,
    frontier: Frontier,
) -> Explanation:
    entry = _full(lost, frontier) if lost.elastic else lost.entry
    swapped = tuple(entry if one.name == component.name else one for one in placement.components)
    priced = cost(record, Placement(components=swapped))
    saved = chosen.seconds - _seconds(lost, frontier)
    if priced.violations:
        because = f"{_limit(record, priced.violations[0])}; it would save {saved:.6g} s a request"
    else:
        because = f"no safe order of moves from the current placement reaches it; it would save {saved:.6g} s a request"
    return Explanation(component=component.name, chosen=words, lost=in_words(component, entry), because=because)


def _limit(record: CalibrationRecord, violation: Violation) -> str:
    short = f"{violation.short_bytes} bytes ({for_people(violation.short_bytes)}) short"
    if violation.constraint == "device" and violation.interval is not None:
        name = interval_name(record, violation.interval)
        return f"device memory: interval {violation.interval} ({name}) on rank {violation.rank} is {short}"
    kind = "pinned memory" if violation.constraint == "pinned" else "host memory"
    return f"{kind}: node {violation.node} is {short}"
