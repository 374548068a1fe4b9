"""The words of an explanation, made from its fields: a program reads the fields, a person the words, and both agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stowplan_agent.planning.violations import interval_name
from stowplan_api.placement import ComponentPlacement, GroupPlacement
from stowplan_api.plan import Constraint, Explanation, Violation
from stowplan_api.quantity import for_people
from stowplan_api.record import CalibrationRecord, Component


@dataclass(frozen=True, slots=True)
class Lost:
    """The best option that a component lost."""

    entry: ComponentPlacement
    seconds: float
    """What a request would take more with it, all others as placed; less than 0 for what it would save."""
    broken: Violation | None = None
    """The limit that it breaks by most; None for one that fits, and is slower or cannot be reached."""


def explained(
    record: CalibrationRecord, component: Component, chosen: ComponentPlacement, lost: Lost | None
) -> Explanation:
    """The explanation of one component, words and fields."""
    words, lost_words = in_words(component, chosen), in_words(component, lost.entry) if lost else None
    if lost and words == lost_words:
        words, lost_words = (in_words(component, entry, fully=True) for entry in (chosen, lost.entry))
    said = Explanation(
        component=component.name,
        chosen=words,
        chosen_entry=chosen,
        lost=lost_words,
        lost_entry=lost.entry if lost else None,
        because="",
        constraint=_constraint(component, lost),
        seconds=lost.seconds if lost else None,
    )
    broken = lost.broken if lost else None
    if broken is not None:
        place = {
            "interval": broken.interval,
            "interval_name": interval_name(record, broken.interval) if broken.interval is not None else None,
            "rank": broken.rank,
            "node": broken.node,
            "short_bytes": broken.short_bytes,
        }
        said = said.model_copy(update=place)
    return said.model_copy(update={"because": because(said, component)})


def _constraint(component: Component, lost: Lost | None) -> Constraint | None:
    if lost is None:
        return "fixed" if component.fixed is not None else None
    if lost.broken is not None and lost.broken.constraint != "entry":
        return lost.broken.constraint
    return "moves" if lost.seconds < 0 else None


def because(said: Explanation, component: Component) -> str:
    """Why ``said.lost`` was lost, from the other fields of ``said``."""
    if said.constraint == "fixed" and component.fixed is not None:
        return f"it must stay {component.fixed.mode}: {component.fixed.reason}"
    if said.seconds is None:
        return "it takes the least time it can"
    if said.constraint is None and said.seconds > 0:
        return f"nothing is faster and this fits; the other would cost {_seconds(said.seconds)} a request more"
    if said.constraint is None:
        return (
            "nothing is faster; the other takes as long, and a tie goes to fewer changes, then to fewer prefetches, "
            "then to fewer bytes"
        )
    if said.seconds < 0:
        gain = f"it would save {_seconds(-said.seconds)} a request"
    else:
        gain = f"it would cost {_seconds(said.seconds)} a request more" if said.seconds else "it would take as long"
    if said.constraint == "moves":
        return f"no safe order of moves from the current placement reaches it; {gain}"
    short = f"{said.short_bytes} bytes ({for_people(said.short_bytes or 0)}) short"
    if said.constraint == "device":
        where = f"device memory: interval {said.interval} ({said.interval_name}) on rank {said.rank}"
    else:
        where = f"{'pinned' if said.constraint == 'pinned' else 'host'} memory: node {said.node}"
    return f"{where} is {short}; {gain}"


def _seconds(taken: float) -> str:
    """Seconds above 0 for a person to read; the field beside the words has all digits."""
    if taken < 0.0001:
        return "less than 0.0001 s"
    return f"{taken:.3g} s" if taken < 100 else f"{taken:.0f} s"


def in_words(component: Component, entry: ComponentPlacement, *, fully: bool = False) -> str:
    """An entry for people; ``fully`` also says what seldom matters: which layers are resident, slots, and pins."""
    if entry.mode == "Resident":
        return f"Resident: all {for_people(component.total_bytes())} always on the device"
    if entry.mode == "Offload":
        pins = _of_ranks([for_people(pinned) for pinned in entry.pinned_bytes or ()], ", ") or "nothing"
        early = ", from the interval before" if entry.prefetch else ""
        return f"Offload: {for_people(component.total_bytes())} brought in to run{early}, {pins} of it pinned"
    groups = {group.name: len(group.layer_bytes) for group in component.groups}
    parts = [_group_in_words(group, groups.get(group.name, 0), fully=fully) for group in entry.groups or ()]
    if entry.loose_lifetime == "Forward" and fully:
        parts.append("the rest only while it runs")
    return f"Layerwise: {', '.join(parts)}"


def _group_in_words(group: GroupPlacement, layers: int, *, fully: bool) -> str:
    kept = "for good" if group.lifetime == "Permanent" else "while it runs"
    words = f"{group.resident_layers} of {layers} {group.name} resident"
    words += f" {kept}" if group.resident_layers else ""
    if group.sharded_layers:
        streamed = layers - group.resident_layers - group.sharded_layers
        words += f"{',' if streamed else ' and'} {group.sharded_layers} sharded over {len(group.pinned_layers)} ranks"
        words += f" and {streamed} streamed" if streamed else ""
    if not fully:
        return words
    spread = "spread evenly, " if group.policy == "Strided" else "the first ones, "
    pins = _of_ranks([str(count) for count in group.pinned_layers], " and ") or "none"
    kept_in = (group.resident_layers, group.sharded_layers or 0)
    return f"{words} ({spread if max(kept_in) < layers and any(kept_in) else ''}{group.slots} slots, {pins} pinned)"


def _of_ranks(each: Sequence[str], between: str) -> str:
    """What each rank has; once, where all have the same."""
    return between.join(each[:1] if len(set(each)) == 1 else each)
