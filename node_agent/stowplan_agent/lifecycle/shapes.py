"""Request shapes of the start-up: the bounded one, and lighter ones along the model's frame contract. Pure."""

from __future__ import annotations

import math
from typing import Final

from stowplan_agent.inventory.frames import FrameContract
from stowplan_api.diffusion_deployment import Shape

BOUNDED_VIDEO: Final = (832, 480, 17)
"""RUNTIME.md, Warm: at most 832x480x17 or 768x768, 4 steps."""
BOUNDED_IMAGE: Final = (768, 768, 1)
BOUNDED_STEPS: Final = 2
"""The fewest in which a scheduler's first step and one that builds on it are both taken."""
PROBED_STEPS: Final = 4
"""Steps of a full-shape request that measures or proves: what is left of its schedule is counted in a rehearsal."""


def bounded(shape: Shape, contract: FrameContract) -> Shape:
    """The shape, or one no larger in area than the bound for warm-ups, at most 17 frames, at most 2 steps."""
    width, height, frames = BOUNDED_VIDEO if shape.frames > 1 else BOUNDED_IMAGE
    factor = min(1.0, math.sqrt(width * height / (shape.width * shape.height)))
    return shape.model_copy(
        update={
            "width": contract.side_at_most(int(shape.width * factor)),
            "height": contract.side_at_most(int(shape.height * factor)),
            "frames": contract.frames_at_most(min(shape.frames, frames)),
            "steps": min(shape.steps, BOUNDED_STEPS),
        }
    )


def short(shape: Shape) -> Shape:
    """The shape at full size, with so few steps that measuring and proving it stay bounded."""
    return shape.model_copy(update={"steps": min(shape.steps, PROBED_STEPS)})


def lighter(shape: Shape, contract: FrameContract) -> Shape | None:
    """About half the work: frames halved while there are any to halve, then area; None when nothing is left."""
    frames = contract.frames_at_most(shape.frames // 2)
    if frames < shape.frames and shape.frames > 1:
        return shape.model_copy(update={"frames": frames})
    width = contract.side_at_most(int(shape.width / math.sqrt(2)))
    height = contract.side_at_most(int(shape.height / math.sqrt(2)))
    if (width, height) == (shape.width, shape.height):
        return None
    return shape.model_copy(update={"width": width, "height": height})


def work(shape: Shape) -> int:
    """Pixels over all frames: what activations grow with, to first order."""
    return shape.width * shape.height * shape.frames


def area(shape: Shape) -> int:
    """Pixels of one frame."""
    return shape.width * shape.height


def describe(shape: Shape) -> str:
    """For people: 832x480x81, 40 steps."""
    frames = f"x{shape.frames}" if shape.frames > 1 else ""
    return f"{shape.width}x{shape.height}{frames}, {shape.steps} steps"
