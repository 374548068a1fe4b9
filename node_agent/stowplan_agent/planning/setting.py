"""A record made ready for searches: its timeline, the option space of each component, and the frame of its limits.

Spaces know what they have priced, so one setting serves many sizes of card and node.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from stowplan_agent.planning.behind import Behind
from stowplan_agent.planning.chains import early_bytes
from stowplan_agent.planning.frame import Frame, Frames
from stowplan_agent.planning.links import have_peers
from stowplan_agent.planning.prefetched import can_gain, slopes
from stowplan_agent.planning.problems import entry_problems
from stowplan_agent.planning.space import Space
from stowplan_agent.planning.table import Floats
from stowplan_agent.planning.timeline import Timeline, timeline_of
from stowplan_agent.planning.visits import Visits
from stowplan_api.model import ContractError
from stowplan_api.placement import Placement
from stowplan_api.record import CalibrationRecord

SAME_WORTH: Final = 1e-9
"""Relative: prices of a locked byte that differ by less are the same sum in another order."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A record and what is known of its options."""

    record: CalibrationRecord
    timeline: Timeline
    spaces: tuple[Space, ...]
    """One a component, in the record's order."""
    frame: Frame
    between: float
    """Seconds of a request in which no component runs, averaged over workloads."""

    early: tuple[str, ...]
    """Components of which a prefetch may gain something."""
    heads: dict[tuple[str, Behind, bool, bool], Space] = field(default_factory=dict)
    """Spaces of components by what is prefetched behind them, whether they may be prefetched, and whether pins are free
    (`freed`)."""
    frames: dict[int, tuple[CalibrationRecord, Frames]] = field(default_factory=dict)
    """Records that frames were made of, by their identity."""
    made: dict[object, Frame] = field(default_factory=dict)
    """These frames, by the identity of their records and what is prefetched."""

    def space(self, name: str) -> Space:
        """The space of one component."""
        return next(space for space in self.spaces if space.component.name == name)

    def frame_with(
        self, record: CalibrationRecord, early: frozenset[str] = frozenset(), choices: Collection[str] = ()
    ) -> Frame:
        """The frame of the same record with other limits, beside what the components ``early`` hold as prefetches.

        ``choices`` are components that a selection may prefetch or not.
        """
        key = (id(record), early, tuple(choices))
        if key not in self.made:
            if id(record) not in self.frames:
                self.frames[id(record)] = record, Frames(record, self.timeline, self.spaces[0].visits.link_of)
            taken = early_bytes(record, self.timeline, early) if early else None
            self.made[key] = self.frames[id(record)][1].frame(taken, choices)
        return self.made[key]


def setting_of(record: CalibrationRecord, current: Placement | None = None) -> Setting:
    """The setting of a record, with the current entries among the options.

    Raises `ContractError` when ``current`` does not belong to the record, and when a component must keep a mode that it
    cannot have.
    """
    timeline = timeline_of(record)
    visits = [Visits(record, timeline, component) for component in record.components]
    frames = Frames(record, timeline, visits[0].link_of)
    frame = frames.frame()
    spaces = tuple(Space(each, frame) for each in visits)
    early = tuple(space.component.name for space in spaces if can_gain(space, timeline, len(record.intervals)))
    prices = _prices(spaces, early)
    for space in spaces:
        space.prices = prices
    if current is not None:
        _check(record, current)
        for space in spaces:
            space.current = current.entry(space.component.name)
    between = sum(
        course.share * stay.run.passes * stay.run.loose_seconds
        for course in timeline.courses
        for stay in course.stays
        if stay.component is None
    )
    return Setting(record, timeline, spaces, frame, between, early, frames={id(record): (record, frames)})


def _prices(spaces: Sequence[Space], early: Sequence[str]) -> Floats:
    """What a locked byte may cost, falling to 0: wherever open pins of something change what is best."""
    worths = {piece.worth for space in spaces for piece in space.curve.pieces if piece.worth > 0}
    for space in spaces:
        more = slopes(space) if space.component.name in early and space.frame.nodes_alike else None
        space.open_loads = more is not None
        worths |= {one for one in more or () if not any(abs(one - other) <= SAME_WORTH * other for other in worths)}
    return np.array([*sorted(worths, reverse=True), 0.0])


def _check(record: CalibrationRecord, current: Placement) -> None:
    known = {component.name for component in record.components}
    for entry in current.components:
        if entry.name not in known:
            raise ContractError(
                f"the current placement has component {entry.name}, which the record lacks; "
                f"it has {', '.join(sorted(known))}"
            )
    entries = {entry.name: entry for entry in current.components}
    for component in record.components:
        problems = entry_problems(component, entries.get(component.name), len(record.ranks), peers=have_peers(record))
        if problems:
            raise ContractError(f"the current placement does not belong to this record: {problems[0]}")
