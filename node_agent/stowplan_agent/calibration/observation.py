"""From watched events to seconds and bytes: what one request did, free of the placement it was watched under.

Layer seconds exclude waiting for copies, which the events around each wait leave out, and exclude the slowdown of
compute by copies: while a share f of the interval's compute had a copy beside it, seconds were inflated by
1 + (contention - 1) f, and f is at most copy seconds / compute seconds (PLANNING.md, small print on contention).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from stowplan_agent.accelerators import Accelerator
from stowplan_agent.calibration.watch import Span, WatchedInterval
from stowplan_api.record import Link


@dataclass(frozen=True)
class Observation:
    """One interval of one request: seconds of a pass, bytes of activations."""

    component: str | None
    entry: str
    calls: int
    passes: int
    activation_bytes: int
    loose_seconds: float
    layer_seconds: dict[str, tuple[float, ...]]
    fragmentation_bytes: int = 0
    """What the allocator took from the device beside all that was in use, at the peak; of a `Watch` that is fresh."""


def observe(
    intervals: Sequence[WatchedInterval],
    accelerator: Accelerator,
    link: Link,
    pinned: Callable[[str], float] = lambda _component: 0.0,
) -> tuple[Observation, ...]:
    """Work out every watched interval. The request must have ended; waits for its last event.

    ``pinned``: which share of the bytes that a component streamed came from locked memory.
    """
    accelerator.synchronize()
    return tuple(_observe(interval, accelerator, link, pinned) for interval in intervals)


def _observe(
    interval: WatchedInterval, accelerator: Accelerator, link: Link, pinned: Callable[[str], float]
) -> Observation:
    def seconds(spans: Sequence[Span]) -> float:
        return sum(max(0.0, accelerator.elapsed(start, end)) for start, end in spans)

    total = max(0.0, accelerator.elapsed(interval.start, interval.end)) - seconds(interval.waits)
    layers = {key: seconds(spans) for key, spans in interval.layers.items()}
    passes = max((len(spans) for spans in interval.layers.values()), default=interval.calls)
    locked = pinned(interval.component) if interval.component is not None else 0.0
    rates = locked / link.pinned_bytes_per_second + (1 - locked) / link.pageable_bytes_per_second
    copying = interval.streamed_bytes * rates
    share = min(1.0, copying / total) if total > 0 else 0.0
    slowdown = 1 + (link.contention - 1) * share
    groups: dict[str, int] = {}
    for group, layer in layers:
        groups[group] = max(groups.get(group, 0), layer + 1)
    return Observation(
        component=interval.component,
        entry=interval.entry,
        calls=interval.calls,
        passes=passes,
        activation_bytes=interval.activation_bytes,
        loose_seconds=max(0.0, total - sum(layers.values())) / slowdown / passes,
        layer_seconds={
            group: tuple(layers.get((group, layer), 0.0) / slowdown / passes for layer in range(count))
            for group, count in groups.items()
        },
        fragmentation_bytes=max(0, interval.reserved_peak - interval.peak),
    )


def with_fragmentation(observations: Sequence[Observation], fresh: Sequence[Observation]) -> tuple[Observation, ...]:
    """The observations with the fragmentation of a fresh watch, of the same request or of a lighter one.

    It grows with activations: blocks are as many, and larger. An interval that the other request did not have keeps
    none.
    """
    shares: dict[tuple[str | None, str], float] = {}
    for one in fresh:
        share = one.fragmentation_bytes / one.activation_bytes if one.activation_bytes else 0.0
        shares[one.component, one.entry] = max(share, shares.get((one.component, one.entry), 0.0))
    return tuple(
        replace(one, fragmentation_bytes=round(one.activation_bytes * shares.get((one.component, one.entry), 0.0)))
        for one in observations
    )


def timeline_of(observations: Sequence[Observation]) -> list[tuple[str | None, str]]:
    """Which components ran, in order: what two requests of one pipeline should have in common."""
    return [(observation.component, observation.entry) for observation in observations]
