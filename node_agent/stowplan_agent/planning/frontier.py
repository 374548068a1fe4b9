"""The options of a component that can be part of a best plan, each with its price.

A frontier holds for any card: bytes and seconds of an option do not depend on the capacity, so one frontier answers all
sizes of device memory. Whether host memory or pins can run short at all is decided from the record's nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from stowplan_agent.planning.dominance import Pareto
from stowplan_agent.planning.layout import layout_of
from stowplan_agent.planning.options import Option, lives_of, stream_choices
from stowplan_agent.planning.shape import Shape
from stowplan_agent.planning.timeline import Timeline
from stowplan_agent.planning.visits import Visits
from stowplan_api.model import ContractError
from stowplan_api.placement import ComponentPlacement
from stowplan_api.record import CalibrationRecord, Component

TOLERANCE: Final = 1e-6
"""Times within this share of each other count as equal (PLANNING.md, small print)."""


@dataclass(frozen=True, slots=True)
class Frontier:
    """What is left of one component's option space."""

    component: Component
    visits: Visits
    options: tuple[Option, ...]
    listed: int
    """Options that were priced or bounded."""
    left_out: tuple[str, ...]
    """What the space leaves out because the component is too large to list, in words."""


@dataclass(frozen=True, slots=True)
class Scarcity:
    """Which limits of host memory can bind at all, over every placement."""

    host: bool
    pins: bool
    nodes: tuple[tuple[int, ...], ...]
    """Indexes of the ranks of each node."""


def scarcity_of(record: CalibrationRecord) -> Scarcity:
    """A limit that holds with a host copy of everything on every rank never binds."""
    nodes = tuple(
        tuple(index for index, rank in enumerate(record.ranks) if rank.node == node.name) for node in record.nodes
    )
    weights = sum(component.total_bytes() for component in record.components)
    pairs = list(zip(record.nodes, nodes, strict=True))
    return Scarcity(
        host=any(weights * len(ranks) > node.host_bytes for node, ranks in pairs),
        pins=any(weights * len(ranks) > node.pinnable_bytes for node, ranks in pairs),
        nodes=nodes,
    )


def frontiers_of(record: CalibrationRecord, timeline: Timeline) -> tuple[Frontier, ...]:
    """The frontier of each component of ``record``, in its order.

    Raises `ContractError` when a component must keep a mode that it cannot have.
    """
    visits = [Visits(record, timeline, component) for component in record.components]
    tolerance = TOLERANCE * (sum(each.most() for each in visits) + between_seconds(timeline))
    scarcity = scarcity_of(record)
    return tuple(_frontier(each, scarcity, tolerance) for each in visits)


def between_seconds(timeline: Timeline) -> float:
    """Seconds of a request in which no component runs, averaged over workloads."""
    return sum(
        course.share * stay.run.passes * stay.run.loose_seconds
        for course in timeline.courses
        for stay in course.stays
        if stay.component is None
    )


def option_of(visits: Visits, entry: ComponentPlacement) -> Option:
    """Any one entry as an option, such as the current one."""
    layout = layout_of(visits.component, entry, len(visits.link_of))
    return Option(layout, visits.seconds(layout), lambda: entry)


def _frontier(visits: Visits, scarcity: Scarcity, tolerance: float) -> Frontier:
    component = visits.component
    fixed = component.fixed.mode if component.fixed else None
    if fixed == "Layerwise" and not component.groups:
        raise ContractError(
            f"component {component.name} is fixed to Layerwise but has no repeated layers; "
            "fix it to Resident or Offload"
        )
    pareto = Pareto(
        tolerance=tolerance,
        visits=bool(visits.stays),
        host=scarcity.host,
        pins=scarcity.pins,
        nodes=scarcity.nodes,
    )
    if fixed in (None, "Resident"):
        pareto.add(option_of(visits, ComponentPlacement(name=component.name, mode="Resident")))
    offload: list[Option] = []
    if fixed in (None, "Offload"):
        unpinned, pinned = (option_of(visits, _offload(visits, pins)) for pins in (0, component.total_bytes()))
        offload = [_elastic(visits) if visits.stays else unpinned]
        pareto.add(unpinned)
        pareto.add(pinned)
    listed = len(pareto.options)
    left_out: tuple[str, ...] = ()
    if fixed in (None, "Layerwise") and component.groups:
        more, left_out = _layerwise(visits, pareto, scarcity.pins, tolerance)
        listed += more
    kept = [option for option in pareto.pruned() if option.entry.mode != "Offload"]
    return Frontier(component, visits, tuple(offload + kept), listed, left_out)


def _layerwise(visits: Visits, pareto: Pareto, scarce: bool, tolerance: float) -> tuple[int, tuple[str, ...]]:
    streams, left_out = stream_choices(visits.component)
    shapes = [Shape(visits, choice, lives) for choice in streams for lives in lives_of(visits.component, choice)]
    bounded = [(shape.bound(), shape) for shape in shapes]
    # From small to large, so that what beats an option is already there when it comes.
    bounded.sort(key=lambda pair: (pair[0].layout.always + pair[0].layout.own, pair[0].layout.always, pair[0].seconds))
    listed = 0
    reasons = set(left_out)
    for bound, shape in bounded:
        listed += 1
        if pareto.beaten(bound):
            continue
        options, more = shape.options(scarce=scarce, tolerance=tolerance)
        reasons |= more
        for option in options:
            listed += 1
            if not pareto.beaten(option):
                pareto.add(option)
    return listed, tuple(sorted(reasons))


def _offload(visits: Visits, pinned: int) -> ComponentPlacement:
    return ComponentPlacement(
        name=visits.component.name, mode="Offload", prefetch=False, pinned_bytes=(pinned,) * len(visits.link_of)
    )


def _elastic(visits: Visits) -> Option:
    """Offload with ``pinnedBytes`` still open: the loads are left to the selection."""
    entry = _offload(visits, 0)
    resident = ComponentPlacement(name=visits.component.name, mode="Resident")
    layout = layout_of(visits.component, entry, len(visits.link_of))
    return Option(layout, option_of(visits, resident).seconds, lambda: entry, visits.loads)
