"""How far apart two outputs are, for references that do not repeat themselves.

Some kernels add in an order that nobody promises, so two runs of one placement give other bits. What a placement may
then differ by is not ours to choose: it is what the reference differs by from itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

Frames = npt.NDArray[np.float32]
"""Frames, height, width, channels; values from 0 to 1."""
STRAY: Final = 2
"""Two runs say roughly how far a third may be from them: up to this many times as far."""


def distance(one: Frames, other: Frames) -> float:
    """The largest difference of any value, from 0 to 1; infinite where shapes differ or a value is no number."""
    if one.shape != other.shape:
        return float("inf")
    most = max((float(np.max(np.abs(a - b))) for a, b in zip(one, other, strict=True)), default=0.0)
    return float("inf") if np.isnan(most) else most


def nearest(output: Frames, runs: Sequence[Frames]) -> float:
    """How far an output is from the run of the reference that is nearest to it."""
    return min(distance(output, run) for run in runs)


def strays(output: Frames, runs: Sequence[Frames], spread: float) -> bool:
    """Whether an output is too far from all runs to be one of theirs: something has changed, such as a weight."""
    return nearest(output, runs) > STRAY * spread
