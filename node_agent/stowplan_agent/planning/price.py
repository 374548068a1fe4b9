"""The one cost model: what a placement takes in bytes and seconds. Everything else in this package calls it.

`cost` is section 3 of PLANNING.md with all of its small print. Where that text leaves a choice, the choice is written
in the docstring of the function that makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from stowplan_agent.planning.held import by_node, device_bytes, layouts_of
from stowplan_agent.planning.layout import Layout
from stowplan_agent.planning.links import RankLink, links_of
from stowplan_agent.planning.ring import Layer, copy_seconds, run_seconds
from stowplan_agent.planning.timeline import Course, Timeline, timeline_of
from stowplan_agent.planning.violations import device_violations, entry_violations, node_violations
from stowplan_api.placement import Placement
from stowplan_api.plan import Cost
from stowplan_api.record import CalibrationRecord, Component, Run


def cost(record: CalibrationRecord, placement: Placement) -> Cost:
    """The price of ``placement``: device bytes by interval and rank, host bytes by node, seconds of one request.

    Bytes are exact integers. Seconds are given for infeasible placements too. What the contract leaves open is
    settled so:

    - The order of a placement's components does not matter; a component that the record does not have is a violation
      and is not charged. Other entries that are not allowed are violations and are priced as `layout_of` says.
    - ``deviceBytes`` has no reserve in it; a violation's ``shortBytes`` has. ``reserveBytes`` of a rank replaces the
      reserve of every interval, also of adaptive and extrapolated ones.
    - There is one violation for each broken limit: each interval and rank, each node's pins, each node's host bytes,
      and each thing that is wrong with an entry.
    - A workload that an interval does not list has 0 passes there. An interval that no workload runs has no
      activations, and still must hold what is always on the device.
    - An interval with 0 passes between two own intervals does not part them: nothing is brought in anew.
    - A prefetch hides behind the whole preceding interval as the slowest rank makes it, less the seconds in which that
      interval's own copies (streamed layers, and what it had to bring in) keep this rank's link busy.
    - A load has no latency term: it is one long copy. A missing ``pinnedBytes`` pins nothing.
    - Ranks have peers (section 6) if there are several, all on one node, and each has a peer rate. Then all copy at the
      pace of the slowest (`links`), there is one host copy, of which each rank is charged with its share and locks its
      share of what is pinned, and no layer is fetched faster than its other parts cross: a streamed layer keeps the
      peer link busy too, beside the host link (`ring`). A load is not shared out: each rank brings all of it in, what
      the others have locked at the pageable rate. A shard is charged as the largest share (`places`).
    """
    layouts = layouts_of(record, placement)
    return price_of(record, timeline_of(record), placement, layouts, links_of(record), stay_seconds)


def price_of(
    record: CalibrationRecord,
    timeline: Timeline,
    placement: Placement,
    layouts: Mapping[str, Layout],
    links: Sequence[RankLink],
    stays: StayPrice,
) -> Cost:
    """The price of a placement that is laid out on ranks with these links; ``stays`` is `stay_seconds`, or knows its
    answers already."""
    device = device_bytes(record, timeline, layouts)
    locked = by_node(record, {name: layout.locked for name, layout in layouts.items()})
    host = by_node(record, {name: layout.host for name, layout in layouts.items()})
    violations = (
        *entry_violations(record, placement),
        *device_violations(record, device),
        *node_violations(record, locked, host),
    )
    each = [_course_seconds(record, course, layouts, links, stays) for course in timeline.courses]
    return Cost(
        feasible=not violations,
        seconds=sum(course.share * seconds for course, seconds in zip(timeline.courses, each, strict=True)),
        workload_seconds={course.workload: seconds for course, seconds in zip(timeline.courses, each, strict=True)},
        device_bytes=device,
        locked_bytes=locked,
        host_bytes=host,
        violations=violations,
    )


@dataclass(frozen=True, slots=True)
class StaySeconds:
    """One interval of one workload on one rank."""

    load: float
    """Bringing in what is not always on the device, with nothing hidden."""
    run: float
    """All passes."""
    copies: float
    """Seconds in which streamed layers keep the host link busy."""


StayPrice = Callable[[Component, Layout, Run, bool, int, RankLink], StaySeconds]
"""A function like `stay_seconds`."""


def stay_seconds(component: Component, layout: Layout, run: Run, loads: bool, rank: int, link: RankLink) -> StaySeconds:
    """Seconds of one component's interval on the rank with index ``rank``, before any prefetch hides a part."""
    layers, slots = pass_layers(component, layout, run, rank, link)
    return StaySeconds(
        load=load_seconds(layout, rank, link) if loads else 0.0,
        run=run_seconds(run.passes, run.loose_seconds, layers, slots, link.contention),
        copies=copy_seconds(run.passes, layers),
    )


def load_seconds(layout: Layout, rank: int, link: RankLink) -> float:
    """Seconds to bring in what is not always on the device, one long copy at each rate."""
    return link.load_seconds(*layout.loads[rank])


def pass_layers(
    component: Component, layout: Layout, run: Run, rank: int, link: RankLink
) -> tuple[list[Layer], list[int]]:
    """The layers of one pass in running order (groups that ``run`` lists, in the record's order), and ring sizes."""
    rings = {ring.group: (index, ring) for index, ring in enumerate(layout.rings)}
    layers = []
    for group in component.groups:
        seconds = run.layer_seconds.get(group.name)
        if seconds is None:
            continue
        index, ring = rings.get(group.name, (-1, None))
        copies: dict[int, float] = {}
        if ring is not None:
            copies = dict.fromkeys(ring.sharded, 0.0)
            for order, layer in enumerate(ring.streamed):
                copies[layer] = link.fetch_seconds(group.layer_bytes[layer], pinned=order < ring.pinned[rank])
        for layer, duration in enumerate(seconds):
            copy = copies.get(layer)
            if copy is None:
                layers.append(Layer(duration, -1, 0.0))
            else:
                layers.append(Layer(duration, index, copy, link.swap_seconds(group.layer_bytes[layer])))
    return layers, [ring.slots for ring in layout.rings]


def _course_seconds(
    record: CalibrationRecord,
    course: Course,
    layouts: Mapping[str, Layout],
    links: Sequence[RankLink],
    stays: StayPrice,
) -> float:
    """Seconds of one request of one workload: intervals in order, each as long as its slowest rank."""
    components = {component.name: component for component in record.components}
    total = 0.0
    idle = [0.0] * len(record.ranks)
    """Seconds of the interval before in which each rank's link had nothing to do."""
    for stay in course.stays:
        if stay.component is None:
            interval_seconds = stay.run.passes * stay.run.loose_seconds
            idle = [interval_seconds] * len(record.ranks)
            total += interval_seconds
            continue
        layout = layouts[stay.component]
        component = components[stay.component]
        known: dict[object, StaySeconds] = {}
        exposed, copies, runs = [], [], []
        for rank, link in enumerate(links):
            key = (link, layout.loads[rank], *(ring.pinned[rank] for ring in layout.rings))
            if key not in known:
                known[key] = stays(component, layout, stay.run, stay.loads, rank, link)
            part = known[key]
            hidden = min(part.load, max(idle[rank], 0.0)) if layout.prefetch and stay.before is not None else 0.0
            exposed.append(part.load - hidden)
            copies.append(part.copies)
            runs.append(part.run)
        interval_seconds = max(load + run for load, run in zip(exposed, runs, strict=True))
        idle = [interval_seconds - load - copy for load, copy in zip(exposed, copies, strict=True)]
        total += interval_seconds
    return total
