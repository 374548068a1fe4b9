"""From requests that fit to one that did not: what the declared shape would have needed.

Two lighter requests give a line a quantity: a text encoder, which does not see the shape, stays as it is, and a decoder
grows with pixels times frames. Where only one lighter request exists, everything is taken to grow in proportion, which
errs on the side of too much. Either way the record is marked, and plans keep the larger reserve.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from stowplan_agent.calibration.observation import Observation, timeline_of


@dataclass(frozen=True)
class Sample:
    """What was observed of a request of ``work`` pixels over all frames."""

    work: int
    observations: Sequence[Observation]


def extrapolate(measured: Sample, smaller: Sample | None, work: int) -> tuple[Observation, ...]:
    """The observations of a request of ``work``, which is more than was ``measured``; never below the measured ones.

    ``smaller`` is of less work than ``measured``; it is left out where it ran other components.
    """
    if smaller is None or timeline_of(smaller.observations) != timeline_of(measured.observations):
        origin = [_nothing(observation) for observation in measured.observations]
        smaller = Sample(0, origin)
    reach = (work - measured.work) / (measured.work - smaller.work)
    return tuple(
        _beyond(near, far, reach) for near, far in zip(smaller.observations, measured.observations, strict=True)
    )


def _beyond(near: Observation, far: Observation, reach: float) -> Observation:
    def line(less: float, more: float) -> float:
        return more + max(0.0, more - less) * reach

    layers = {
        group: tuple(
            line(before, seconds)
            for before, seconds in zip(near.layer_seconds.get(group, (0.0,) * len(row)), row, strict=True)
        )
        for group, row in far.layer_seconds.items()
    }
    return replace(
        far,
        activation_bytes=round(line(near.activation_bytes, far.activation_bytes)),
        loose_seconds=line(near.loose_seconds, far.loose_seconds),
        layer_seconds=layers,
        fragmentation_bytes=round(line(near.fragmentation_bytes, far.fragmentation_bytes)),
    )


def _nothing(observation: Observation) -> Observation:
    return replace(observation, activation_bytes=0, loose_seconds=0.0, layer_seconds={}, fragmentation_bytes=0)
