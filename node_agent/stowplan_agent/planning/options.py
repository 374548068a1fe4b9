"""The option space of one component: every entry of section 2 that could be part of a best plan, each with its price.

Seconds of a component do not depend on the other components as long
as nothing is prefetched, so options are priced once and serve every size of card. This module lists the ways;
`frontier` prices and prunes them.

The space is all of section 2 except prefetching, and except what a listing says that it left out because a component is
too large: those sentences go into the proof of every plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import product
from typing import Final, NamedTuple

from stowplan_agent.planning.layout import Layout
from stowplan_api.placement import ComponentPlacement, GroupPlacement, Lifetime, Policy, streamed_layers
from stowplan_api.record import Component, Group

POLICIES: Final[tuple[Policy, ...]] = ("Leading", "Strided")
LIFETIMES: Final[tuple[Lifetime, ...]] = ("Forward", "Permanent")
SLOTS: Final = (2, 3)
MOST_STREAMS: Final = 2500
"""Ways to stream a component (before pins and lifetimes) up to which all of them are listed."""


class Option:
    """One entry that a component may have, with its bytes and its seconds.

    ``seconds`` is its part of a request, averaged over workloads. An elastic option is an Offload whose ``pinnedBytes``
    the selection still chooses; its ``seconds`` are without loads, and ``loads`` says how often a request brings it in.
    The entry itself is made when it is asked for: most options are pruned without it.
    """

    def __init__(
        self, layout: Layout, seconds: float, make: Callable[[], ComponentPlacement], loads: float = 0.0
    ) -> None:
        self.layout = layout
        self.seconds = seconds
        self.loads = loads
        self._make = make

    @cached_property
    def entry(self) -> ComponentPlacement:
        """The entry of the placement."""
        return self._make()

    @cached_property
    def text(self) -> str:
        """Canonical JSON of the entry: the last tie-break."""
        return self.entry.canonical()

    @property
    def elastic(self) -> bool:
        """Whether ``pinnedBytes`` is still open."""
        return self.loads > 0


class Stream(NamedTuple):
    """How one group is streamed: what decides the seconds of a pass, apart from pins."""

    resident: int
    policy: Policy
    slots: int
    streamed: tuple[int, ...]


def streams_of(group: Group) -> list[Stream]:
    """Every different way to stream a group; of spellings with the same bytes, the first in canonical text."""
    layers = len(group.layer_bytes)
    found: dict[tuple[tuple[int, ...], int], Stream] = {}
    for resident in range(layers + 1):
        for policy in POLICIES:
            streamed = streamed_layers(layers, resident, policy)
            for slots in SLOTS if streamed else SLOTS[:1]:
                found.setdefault((streamed, slots), Stream(resident, policy, slots, streamed))
    return list(found.values())


def stream_choices(component: Component) -> tuple[list[tuple[Stream, ...]], tuple[str, ...]]:
    """Ways to stream all groups of a component, and what was left out if those are too many to list."""
    each = [streams_of(group) for group in component.groups]
    size = 1
    for streams in each:
        size *= len(streams)
    if size <= MOST_STREAMS:
        return list(product(*each)), ()
    alike = [choice for choice in product(*each) if _alike(choice)]
    return alike, (f"the groups of {component.name} share one policy and one number of slots",)


def _alike(choice: tuple[Stream, ...]) -> bool:
    streaming = [stream for stream in choice if stream.streamed]
    mixed = [stream for stream in streaming if stream.resident]
    return len({stream.slots for stream in streaming}) <= 1 and len({stream.policy for stream in mixed}) <= 1


class Lives(NamedTuple):
    """How long the loose weights and the resident set of each group stay."""

    loose: Lifetime
    groups: tuple[Lifetime, ...]


def lives_of(component: Component, streams: tuple[Stream, ...]) -> Iterator[Lives]:
    """Every different choice of lifetimes. All permanent and all resident is left to mode Resident, which it equals."""
    loose: tuple[Lifetime, ...] = LIFETIMES if component.loose_bytes else LIFETIMES[:1]
    groups = [LIFETIMES if stream.resident else LIFETIMES[:1] for stream in streams]
    for life in loose:
        for choice in product(*groups):
            kept = life == "Permanent" or not component.loose_bytes
            if kept and not any(s.streamed for s in streams) and all(one == "Permanent" for one in choice):
                continue
            yield Lives(life, choice)


def layerwise_entry(
    component: Component, streams: tuple[Stream, ...], lives: Lives, pins: tuple[tuple[int, ...], ...]
) -> ComponentPlacement:
    """The entry; ``pins`` are the pinned layers, group by rank."""
    groups = tuple(
        GroupPlacement(
            name=group.name,
            resident_layers=stream.resident,
            policy=stream.policy,
            lifetime=life,
            slots=stream.slots,
            pinned_layers=pinned,
        )
        for group, stream, life, pinned in zip(component.groups, streams, lives.groups, pins, strict=True)
    )
    return ComponentPlacement(name=component.name, mode="Layerwise", loose_lifetime=lives.loose, groups=groups)


def same_bytes(first: ComponentPlacement, second: ComponentPlacement, component: Component) -> bool:
    """Whether two entries place the same bytes (PLANNING.md, small print): a lifetime of nothing does not count."""
    return _plain(first, component) == _plain(second, component)


def _plain(entry: ComponentPlacement, component: Component) -> ComponentPlacement:
    if entry.mode == "Resident":
        return entry
    if entry.mode == "Offload":
        pinned = entry.pinned_bytes if entry.pinned_bytes and any(entry.pinned_bytes) else None
        return entry.model_copy(update={"prefetch": bool(entry.prefetch), "pinned_bytes": pinned})
    loose = entry.loose_lifetime if component.loose_bytes else None
    groups = tuple(
        group if group.resident_layers else group.model_copy(update={"lifetime": "Permanent"})
        for group in sorted(entry.groups or (), key=lambda group: group.name)
    )
    return entry.model_copy(update={"loose_lifetime": loose or "Permanent", "groups": groups})
