"""The limits of a record as the selection sees them: a few sums over components, whatever the number of ranks.

A component runs alone, so device memory asks of every component that what always is on the device, of all components
together, and its own ring, load or whole fit the tightest of its own intervals. All ranks of a node lock the same
bytes if their links are alike, and hold the same host copies; with peers they have one copy together, and count on the
host like one rank. So eight ranks are no harder than one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from stowplan_agent.planning.limits import activation_bytes, weight_room
from stowplan_agent.planning.links import have_peers
from stowplan_agent.planning.table import Floats
from stowplan_agent.planning.timeline import Timeline
from stowplan_api.record import CalibrationRecord, Rank

Names = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Frame:
    """What a selection must stay within. Bytes are whole numbers in floats, exact up to 2^53."""

    components: Names
    room: Floats
    """By component: bytes that fit its tightest own interval; infinite for one that never runs."""
    idle_room: float
    """Bytes that fit the tightest interval in which no component runs."""
    host: float
    """Bytes of host copies a rank, or with peers of all ranks."""
    pinnable: Floats
    """By node: bytes that can be locked."""
    weights: float
    """Bytes of all components."""
    ranks_of: Floats
    """Node by link class: how many ranks it has that hold host copies of their own; with peers one, for all ranks."""
    ranks: tuple[tuple[int, ...], ...]
    """By node: indexes of its ranks."""
    peaks: tuple[Peak, ...]
    early: tuple[Early, ...]

    pins_scarce: bool = field(init=False)
    """Whether some node cannot lock a host copy of everything on every rank."""
    host_scarce: bool = field(init=False)
    """Whether some node cannot hold a host copy of everything on every rank."""

    def __post_init__(self) -> None:
        pins_scarce = bool((self.ranks_of.sum(axis=1) * self.weights > self.pinnable).any())
        object.__setattr__(self, "pins_scarce", pins_scarce)
        object.__setattr__(self, "host_scarce", self.weights > self.host)

    @property
    def nodes_alike(self) -> bool:
        """Whether all nodes have as many ranks of each link class."""
        return bool((self.ranks_of == self.ranks_of[0]).all())


def loosest(frames: Sequence[Frame]) -> Frame:
    """The frame of the largest room, host memory and pins; for bounds, which know of no other limits."""
    return replace(
        frames[0],
        room=np.max([frame.room for frame in frames], axis=0),
        idle_room=max(frame.idle_room for frame in frames),
        host=max(frame.host for frame in frames),
        pinnable=np.max([frame.pinnable for frame in frames], axis=0),
    )


@dataclass(frozen=True, slots=True)
class Early:
    """An interval in which components may be held by a prefetch that a selection still chooses."""

    owner: int
    """The component that runs; -1 where none does."""
    components: tuple[int, ...]
    """Those that a prefetch may hold."""
    room: float


@dataclass(frozen=True, slots=True)
class Peak:
    """The largest interval of some ranks with the same activations: what ties are broken by."""

    ranks: int
    outside: float
    """Bytes outside the allocator, of all these ranks together."""
    own: Floats
    """By component: largest activations and prefetched bytes of its own intervals; minus infinity for one that never
    runs."""
    idle: float
    """The same of the intervals in which no component runs."""
    early: Floats
    """The same of each interval of ``Frame.early``, without what a selection still chooses."""


class Frames:
    """The frames of one record, whatever is prefetched: what they have in common is worked out once.

    ``links`` is the link class of each rank.
    """

    def __init__(self, record: CalibrationRecord, timeline: Timeline, links: Sequence[int]) -> None:
        self.timeline = timeline
        self.names = tuple(component.name for component in record.components)
        self.room = [min(ranks) for ranks in weight_room(record)]
        at_home = {index for own in timeline.own.values() for index in own}
        self.idle = [index for index in range(len(record.intervals)) if index not in at_home]
        ranks_of = np.zeros((len(record.nodes), max(links) + 1))
        for index, rank in enumerate(record.ranks):
            ranks_of[[node.name for node in record.nodes].index(rank.node), links[index]] += 1
        if have_peers(record):
            ranks_of = np.minimum(ranks_of, 1.0)
        used = [index for index in range(len(record.nodes)) if ranks_of[index].any()]
        self.host = float(min(record.nodes[index].host_bytes // int(ranks_of[index].sum()) for index in used))
        self.pinnable = np.array([float(record.nodes[index].pinnable_bytes) for index in used])
        self.weights = float(sum(component.total_bytes() for component in record.components))
        self.ranks_of = ranks_of[used]
        self.ranks = tuple(
            tuple(i for i, rank in enumerate(record.ranks) if rank.node == record.nodes[index].name) for index in used
        )
        alike: dict[tuple[int, ...], list[Rank]] = {}
        for index, rank in enumerate(record.ranks):
            alike.setdefault(tuple(activation_bytes(one, index) for one in record.intervals), []).append(rank)
        self.alike = [(held, len(each), float(sum(one.outside_bytes for one in each))) for held, each in alike.items()]
        """Activations by interval, how many ranks have these, and their bytes outside the allocator."""

    def frame(self, early: Sequence[int] | None = None, choices: Collection[str] = ()) -> Frame:
        """The frame beside ``early`` bytes by interval that prefetches hold there: for all others they are room that
        is taken. ``choices`` are components that a selection may prefetch or not."""
        timeline, names = self.timeline, self.names
        taken = early or [0] * len(self.room)
        before = sorted({index for name in choices for index in timeline.before[name]})
        room = [one - bytes_ for one, bytes_ in zip(self.room, taken, strict=True)]
        return Frame(
            components=names,
            room=np.array([min((room[i] for i in timeline.own[name]), default=np.inf) for name in names]),
            idle_room=float(min((room[i] for i in self.idle), default=np.inf)),
            host=self.host,
            pinnable=self.pinnable,
            weights=self.weights,
            ranks_of=self.ranks_of,
            ranks=self.ranks,
            peaks=self._peaks(taken, before),
            early=tuple(
                Early(
                    owner=next((c for c, name in enumerate(names) if index in timeline.own[name]), -1),
                    components=tuple(
                        c for c, name in enumerate(names) if name in choices and index in timeline.before[name]
                    ),
                    room=float(room[index]),
                )
                for index in before
            ),
        )

    def _peaks(self, taken: Sequence[int], before: Sequence[int]) -> tuple[Peak, ...]:
        found = []
        for activations, ranks, outside in self.alike:
            held = [float(one + more) for one, more in zip(activations, taken, strict=True)]
            own = [max((held[i] for i in self.timeline.own[name]), default=-np.inf) for name in self.names]
            found.append(
                Peak(
                    ranks=ranks,
                    outside=outside,
                    own=np.array(own),
                    idle=max((held[i] for i in self.idle), default=-np.inf),
                    early=np.array([held[i] for i in before]),
                )
            )
        return tuple(found)
