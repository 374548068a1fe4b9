"""Seconds of a request against device memory: which size is worth its price for this model and this shape.

Everything but the bytes of device memory stays as the record has it: the compute, the link and the host of the machine
that was measured. So a size of 24 GiB means this card with 24 GiB, not another card that happens to have as much.
Every point is the optimum that the planner proved for that size; between two points the seconds are at most those of
the smaller one, since more memory is never slower. That is why the curve is drawn in steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from stowplan_agent.estimate.cards import Card, sizes_of_cards
from stowplan_agent.planning import seconds_by_memory, solve, with_device_memory
from stowplan_agent.planning.held import layouts_of
from stowplan_agent.report.sizes import GIB, default_range, even_sizes, full_size, smallest_size
from stowplan_api.plan import Plan
from stowplan_api.record import CalibrationRecord

AROUND: Final = 16
"""Sizes that draw a curve clear enough to see where a card lies."""
EQUAL: Final = 1e-6
"""Seconds that differ relatively by less are equal, as for the planner."""


@dataclass(frozen=True, slots=True)
class Held:
    """Where the bytes of one component are, by the plan of one size."""

    component: str
    always: int
    """On the device for good."""
    running: int
    """Further resident bytes while it runs; rings of slots are not counted, for they only pass layers through."""
    total: int
    words: str


@dataclass(frozen=True, slots=True)
class Point:
    """The best request on one size of device memory. ``seconds`` is None where nothing fits."""

    size: int
    seconds: float | None
    cards: tuple[Card, ...] = ()
    plan: Plan | None = None
    """Solved in full where marked: sizes of cards, those asked for, where it begins to fit, where all is resident."""
    held: tuple[Held, ...] = ()


@dataclass(frozen=True, slots=True)
class Frontier:
    """All points, smallest size first."""

    record: CalibrationRecord
    points: tuple[Point, ...]
    smallest: int | None
    """Bytes of the smallest device on which anything fits; None where host memory forbids it on every size."""
    full: int
    """Bytes with which every component that may be is Resident."""

    @property
    def feasible(self) -> tuple[Point, ...]:
        """The points at which something fits."""
        return tuple(point for point in self.points if point.seconds is not None)

    @property
    def marked(self) -> tuple[Point, ...]:
        """The points that were solved in full."""
        return tuple(point for point in self.points if point.plan is not None)

    @property
    def fastest(self) -> Point | None:
        """The smallest size of which none above is faster."""
        return self.within(EQUAL)

    def within(self, share: float) -> Point | None:
        """The smallest point at most ``share`` (0.01: one percent) slower than the fastest; None if none fits."""
        best = min((point.seconds for point in self.feasible if point.seconds is not None), default=None)
        if best is None:
            return None
        return next(point for point in self.feasible if (point.seconds or 0.0) <= best * (1 + share))

    def loss(self, point: Point, among: Sequence[Point]) -> float | None:
        """Seconds that a request takes more at ``point`` than at the next larger one of ``among``; None at the end."""
        larger = next((one for one in among if one.size > point.size), None)
        if larger is None or larger.seconds is None or point.seconds is None:
            return None
        return max(point.seconds - larger.seconds, 0.0)


def frontier(
    record: CalibrationRecord,
    sizes: Sequence[int],
    *,
    named: bool = False,
    progress: Callable[[str], None] = lambda text: None,
) -> Frontier:
    """The frontier of ``record`` over ``sizes`` bytes. With ``named`` each of them is solved in full.

    Otherwise the sizes of known cards, the smallest size that fits and that of everything resident are added, and those
    are solved in full. So is the largest size on which nothing fits, for its reason. ``progress`` is told what is done.
    """
    least, most = min(sizes), max(sizes)
    smallest = smallest_size(record)
    cards = sizes_of_cards(least, most)
    full_at = set(sizes) if named else set(cards)
    whole = full_size(record)
    if not named:
        full_at |= {size for size in (smallest, whole) if size is not None and least <= size <= most}
    every = sorted({*sizes, *full_at})
    progress(f"solving for {len(every)} sizes of device memory")
    seconds = seconds_by_memory(record, every)
    short = [size for size in every if seconds[size] is None]
    full_at |= set(short[-1:])
    points = []
    for size in every:
        plan = solve(with_device_memory(record, size)) if size in full_at else None
        if plan is not None:
            progress(f"solved for {size / GIB:.4g} GiB: {plan.status}")
        points.append(Point(size, seconds[size], cards.get(size, ()), plan, _held(record, plan)))
    return Frontier(record, tuple(points), smallest, whole)


def frontier_around(record: CalibrationRecord, count: int = AROUND) -> Frontier:
    """The frontier of ``record`` over a few sizes, from too small to all resident, its own card among them.

    Only seconds: nothing is solved in full, which is what takes long, so no point says what stays on the card.
    """
    here, whole = min(rank.capacity_bytes for rank in record.ranks), full_size(record)
    least, most = default_range(record)
    # A model far smaller than any card would be a step at the left edge of an empty picture.
    most = max(min(most, 2 * whole), here)
    cards = sizes_of_cards(min(least, here), most)
    every = sorted({*even_sizes(min(least, here), most, count), *cards, here})
    seconds = seconds_by_memory(record, every)
    points = tuple(Point(size, seconds[size], cards.get(size, ())) for size in every)
    return Frontier(record, points, smallest_size(record), whole)


def _held(record: CalibrationRecord, plan: Plan | None) -> tuple[Held, ...]:
    if plan is None or plan.placement is None:
        return ()
    words = {one.component: one.chosen for one in plan.explanations}
    layouts, held = layouts_of(record, plan.placement), []
    for component in record.components:
        layout = layouts[component.name]
        layers = {group.name: group.layer_bytes for group in component.groups}
        slots = {group.name: group.slots for group in plan.placement.entry(component.name).groups or ()}
        rings = sum(
            slots[ring.group] * max((layers[ring.group][layer] for layer in ring.arriving), default=0)
            for ring in layout.rings
        )
        running = layout.own - rings
        held.append(
            Held(component.name, layout.always, running, component.total_bytes(), words.get(component.name, ""))
        )
    return tuple(held)
