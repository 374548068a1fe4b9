"""What is asked of the pipeline, what it gives back, and the three ways a request ends early.

These values are the whole border between HTTP and whoever runs the pipeline: neither side sees more of the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Kind = Literal["image", "video"]
Frames = NDArray[np.uint8]


@dataclass(frozen=True)
class GenerationRequest:
    """One request, complete: every default is filled in before it enters the queue."""

    kind: Kind
    prompt: str
    negative_prompt: str | None
    width: int
    """Pixels."""
    height: int
    """Pixels."""
    frames: int
    """1 for an image."""
    steps: int
    seed: int
    guidance: float | None
    """None leaves the pipeline's own default."""
    count: int = 1
    """Images of one prompt; always 1 for a video."""

    @property
    def all_steps(self) -> int:
        """Steps over all of its images."""
        return self.steps * self.count


@dataclass(frozen=True, eq=False)
class GenerationResult:
    """What the pipeline made."""

    frames: Frames
    """uint8 RGB, shape [f, h, w, 3]: the frames of a video, or the ``count`` images of an image request."""
    seconds: float
    """Time on the device, without waiting in the queue."""
    fps: int
    """Frames a second of a video."""


class Refused(Exception):  # noqa: N818 - an outcome, named as one
    """Admission said no before anything ran. The message has the need, the limit and what would fit."""


class Failed(Exception):  # noqa: N818 - an outcome, named as one
    """The request started and could not be finished; its message is one sentence for the client."""


class Cancelled(Exception):  # noqa: N818 - an outcome, named as one
    """Raised by the run callable when it stopped because ``cancelled()`` was true."""
