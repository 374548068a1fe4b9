"""From a light request that was watched to what a heavier one needs at least: whether it is worth a try. Pure.

A try that is hopeless still runs until it fails, which for a video may be minutes. So what is certain to be short is
not tried (RUNTIME.md, start-up). All else is: a try that runs out of memory costs seconds, and a shape that was given
up without need costs its plan. What grows, and with what, is read off the timeline, not off names: components that run
before the one with most passes do not see the picture; that one sees every latent of every frame, and the prompt; what
comes after it sees a frame, or a few at once, whatever their number.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from stowplan_agent.calibration.observation import Observation


@dataclass(frozen=True)
class Extent:
    """The size of a request."""

    area: int
    """Pixels of a frame."""
    tokens: int
    """What the denoiser attends to: patches of all frames, and the longest prompt, which does not grow."""


def at_least(
    observed: Sequence[Observation], of: Extent, wanted: Extent, constant: Collection[str] = ()
) -> tuple[Observation, ...]:
    """The observations of a request of the extent ``wanted``, with the fewest activations that it can have.

    ``observed`` are those of a request of the extent ``of``, which is no larger. ``constant``: components whose
    activations do not grow, for they work tile by tile.
    """
    passes: dict[str, int] = {}
    for one in observed:
        if one.component is not None:
            passes[one.component] = passes.get(one.component, 0) + one.passes
    busiest = max(passes, key=passes.__getitem__, default=None)
    area, tokens = wanted.area / of.area, wanted.tokens / of.tokens
    found, seen = [], False
    for one in observed:
        seen = seen or one.component == busiest
        if not seen or one.component is None or one.component in constant:
            growth = 1.0
        else:
            growth = tokens if one.component == busiest else area
        found.append(replace(one, activation_bytes=int(one.activation_bytes * max(1.0, growth))))
    return tuple(found)
