"""How long each phase may take, in seconds: computed from what the spec says, settable one by one. Pure.

A deadline is there to turn a start that hangs into one that says so: it is an upper bound and never an estimate. What
is read is bounded by a rate that slow storage still reaches. What is computed is bounded by what the warm-up took on
this very card, once there was one; before it, by a rate for the slowest of them. The operator has a deadline of its own
for the whole rollout, by what requests took that were proven.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, get_args

from stowplan_agent.lifecycle.phases import ENDS
from stowplan_agent.lifecycle.shapes import BOUNDED_IMAGE, BOUNDED_STEPS, BOUNDED_VIDEO, short
from stowplan_api.diffusion_deployment import DiffusionDeploymentSpec, Shape
from stowplan_api.model import ContractError
from stowplan_api.residency_placement import Phase

DEADLINES: Final = "STOWPLAN_PHASE_DEADLINES"
"""Seconds that single phases may take, such as ``Load=600,Probe=3600``; the others keep their computed ones."""
FIXED: Final = 300.0
"""Seconds of any phase beside its work: imports, compilation, a busy host."""
READ_RATE: Final = 1e8
"""Bytes a second of a checkpoint over a 1 Gbit/s network or from a hub."""
LONGEST_READ: Final = 14_400.0
"""Seconds: nobody waits longer than four hours for a checkpoint, whatever the memory limit would hold."""
TOKEN_STEPS: Final = 500.0
"""Denoised tokens a second: ten times slower than one H200 with a 14 B model."""
WARM_TOKEN_STEPS: Final = 25.0
"""The same of a card that nothing is known of yet: 14 B parameters take 56 GFLOP a token with guidance, and a card
without bfloat16 computes 3 to 4 TFLOP a second of it; a third of that."""
WARM_TRIES: Final = 2
"""Warm-ups in all: each lighter one takes half of the one before."""
SLACK: Final = 3.0
"""How many times as long as the warm-up says a request may take."""
TOKEN_PIXELS: Final = 16 * 16 * 4
"""Pixels over all frames in one token: a VAE of 8 times a patch of 2, and 4 in time."""
PHASES: Final[tuple[Phase, ...]] = tuple(phase for phase in get_args(Phase) if phase not in ENDS and phase != "Pending")


@dataclass(frozen=True)
class Warmed:
    """What the warm-up took on this card, everything included."""

    shape: Shape
    seconds: float


def phase_deadlines(
    spec: DiffusionDeploymentSpec,
    memory_limit: int | None,
    environment: Mapping[str, str],
    warmed: Warmed | None = None,
) -> dict[Phase, float]:
    """Seconds for each phase. ``memory_limit``: bytes of host memory, which bound what can be loaded. ``warmed``: what
    is known of this card; None before it has run anything.

    Raises `ContractError` for a ``STOWPLAN_PHASE_DEADLINES`` that names no phase or no positive number.
    """
    read = min((spec.resources.memory if memory_limit is None else memory_limit) / READ_RATE, LONGEST_READ)
    shapes = spec.workload.shapes
    whole = max(request_seconds(shape, warmed) for shape in shapes)
    once = max(request_seconds(short(shape), warmed) for shape in shapes)
    computed: dict[Phase, float] = {
        "Inventory": FIXED + read,  # an hf:// source is downloaded here
        "Load": FIXED + read,
        "Warm": FIXED + WARM_TRIES * _token_steps(_within_bound(shapes[0])) / WARM_TOKEN_STEPS,
        # Each shape in all of its steps where the pipeline cannot be rehearsed, and lighter ones where memory runs out.
        "Probe": FIXED + 2 * len(shapes) * whole,
        "WarmAgain": FIXED + once,
        "Revalidate": FIXED + once,
        "Solve": FIXED,
        "Apply": FIXED + read,
        # A step and the proof, each once more where memory ran out; and where the reference may not repeat itself, two
        # more of that, and the step and the proof again.
        "Validate": FIXED + 8 * once,
        "RollBack": 2 * FIXED + read + 6 * once,
    }
    return computed | _stated(environment.get(DEADLINES, ""))


def too_long(phase: Phase, seconds: float) -> str:
    """The one sentence about a phase that is past its deadline."""
    return (
        f"phase {phase} has not ended after {seconds:g} s, its deadline; look at this pod's log and at the storage and "
        f"the device it waits for, or give it longer with {DEADLINES}={phase}=SECONDS in spec.serving.env"
    )


def request_seconds(shape: Shape, warmed: Warmed | None) -> float:
    """Upper bound in seconds of one request of a shape.

    From a lighter request: more steps take longer in proportion, and more tokens in proportion to their square at most,
    which is what attention does.
    """
    seconds = _token_steps(shape) / TOKEN_STEPS
    if warmed is None:
        return seconds
    steps = max(1.0, shape.steps / warmed.shape.steps)
    tokens = max(1.0, _tokens(shape) / _tokens(warmed.shape))
    return max(seconds, SLACK * warmed.seconds * steps * tokens**2)


def _tokens(shape: Shape) -> int:
    return math.ceil(shape.width * shape.height * (shape.frames + 3) / TOKEN_PIXELS)


def _token_steps(shape: Shape) -> int:
    return _tokens(shape) * shape.steps


def _within_bound(shape: Shape) -> Shape:
    """No smaller than the shape that is warmed up with (`shapes.bounded`), which also keeps to the model's strides."""
    width, height, frames = BOUNDED_VIDEO if shape.frames > 1 else BOUNDED_IMAGE
    factor = min(1.0, math.sqrt(width * height / (shape.width * shape.height)))
    return shape.model_copy(
        update={
            "width": math.ceil(shape.width * factor),
            "height": math.ceil(shape.height * factor),
            "frames": min(shape.frames, frames),
            "steps": min(shape.steps, BOUNDED_STEPS),
        }
    )


def _stated(text: str) -> dict[Phase, float]:
    known = {str(phase): phase for phase in PHASES}
    stated: dict[Phase, float] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = part.partition("=")
        if name not in known:
            raise ContractError(f"{DEADLINES} names {name!r}, which is no phase; choose from {', '.join(known)}")
        try:
            seconds = float(value)
        except ValueError:
            seconds = math.nan
        if not 0 < seconds < math.inf:
            raise ContractError(f"{DEADLINES}: {part!r} has no positive number; write {name}=SECONDS")
        stated[known[name]] = seconds
    return stated
