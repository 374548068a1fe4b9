"""One request to a pipeline, and how its fields are named by the pipeline that gets it.

Pipelines differ in which arguments they take; a request passes those that the signature has. The generator is always on
the CPU, so that a seed gives the same noise on every device.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch

PROMPT: Final = "A lighthouse at the edge of the sea, waves breaking on the rocks, late light, slow camera"
"""The prompt of warm-ups, probes and validation: encoders pad to their longest, so that its length does not matter."""


@dataclass(frozen=True)
class PipelineRequest:
    """Pixels, frames (1 for an image), steps, and a seed."""

    width: int
    height: int
    frames: int
    steps: int
    prompt: str = PROMPT
    negative_prompt: str | None = None
    guidance: float | None = None
    seed: int = 0

    def arguments(self, call: Callable[..., Any], *, stop: Callable[[], bool] | None = None) -> dict[str, Any]:
        """Keyword arguments for a pipeline's ``__call__``. ``stop`` is asked after each step."""
        known = inspect.signature(call).parameters
        wanted: dict[str, Any] = {
            "prompt": self.prompt,
            "negative_prompt": self.negative_prompt,
            "width": self.width,
            "height": self.height,
            "num_frames": self.frames,
            "num_inference_steps": self.steps,
            "guidance_scale": self.guidance,
            "generator": torch.Generator("cpu").manual_seed(self.seed),
            "output_type": "np",
        }
        if stop is not None:
            wanted["callback_on_step_end"] = _stopper(stop)
        return {name: value for name, value in wanted.items() if name in known and value is not None}


class Stopped(Exception):  # noqa: N818 - an outcome, named as one
    """The request was cancelled between two steps."""


def _stopper(stop: Callable[[], bool]) -> Callable[[Any, int, Any, dict[str, Any]], dict[str, Any]]:
    def after_step(_pipeline: Any, _step: int, _timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
        if stop():
            raise Stopped
        return tensors

    return after_step
