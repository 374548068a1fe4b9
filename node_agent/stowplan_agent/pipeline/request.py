"""One request to a pipeline, and how its fields are named by the pipeline that gets it.

Pipelines differ in which arguments they take; a request passes those that the signature has. The generator is always on
the CPU, so that a seed gives the same noise on every device.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL.Image import Image, fromarray

from stowplan_agent.pipeline.prompts import PROMPT


@dataclass(frozen=True)
class PipelineRequest:
    """Pixels, frames (1 for an image), steps, and a seed."""

    width: int
    height: int
    frames: int
    steps: int
    prompt: str | None = None
    """None for a request that only measures: the longest prompt that the pipeline encodes."""
    negative_prompt: str | None = None
    guidance: float | None = None
    seed: int = 0

    def arguments(self, call: Callable[..., Any], *, stop: Callable[[], bool] | None = None) -> dict[str, Any]:
        """Keyword arguments for a pipeline's ``__call__``. ``stop`` is asked after each step."""
        known = inspect.signature(call).parameters
        wanted: dict[str, Any] = {
            "prompt": PROMPT if self.prompt is None else self.prompt,
            "negative_prompt": self.negative_prompt,
            "image": picture(self.width, self.height) if needs_image(call) else None,
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


def needs_image(call: Callable[..., Any]) -> bool:
    """Whether a pipeline makes nothing without an image to begin with."""
    image = inspect.signature(call).parameters.get("image")
    return image is not None and image.default is inspect.Parameter.empty


def picture(width: int, height: int) -> Image:
    """The image of a request that only measures: shades from corner to corner, the same each time."""
    rows, columns = np.mgrid[0:height, 0:width]
    shades = [rows * 255 // max(height - 1, 1), columns * 255 // max(width - 1, 1), (rows + columns) % 256]
    return fromarray(np.stack(shades, axis=-1).astype(np.uint8))


def _stopper(stop: Callable[[], bool]) -> Callable[[Any, int, Any, dict[str, Any]], dict[str, Any]]:
    def after_step(_pipeline: Any, _step: int, _timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
        if stop():
            raise Stopped
        return tensors

    return after_step
