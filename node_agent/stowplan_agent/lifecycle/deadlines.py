"""How long each phase may take, in seconds: computed from what the spec says, settable one by one. Pure.

A deadline is there to turn a start that hangs into one that says so. Every rate is one that slow hardware still
reaches, so that a deadline is an upper bound and never an estimate; the operator's own, for the whole rollout, is made
of the same rates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, get_args

from stowplan_agent.lifecycle.phases import ENDS
from stowplan_agent.lifecycle.shapes import short
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
TOKEN_PIXELS: Final = 16 * 16 * 4
"""Pixels over all frames in one token: a VAE of 8 times a patch of 2, and 4 in time."""
PHASES: Final[tuple[Phase, ...]] = tuple(phase for phase in get_args(Phase) if phase not in ENDS and phase != "Pending")


def phase_deadlines(
    spec: DiffusionDeploymentSpec, memory_limit: int | None, environment: Mapping[str, str]
) -> dict[Phase, float]:
    """Seconds for each phase. ``memory_limit``: bytes of host memory, which bound what can be loaded.

    Raises `ContractError` for a ``STOWPLAN_PHASE_DEADLINES`` that names no phase or no positive number.
    """
    read = min((spec.resources.memory if memory_limit is None else memory_limit) / READ_RATE, LONGEST_READ)
    shapes = spec.workload.shapes
    whole = max(_seconds(shape) for shape in shapes)
    once = max(_seconds(short(shape)) for shape in shapes)
    computed: dict[Phase, float] = {
        "Inventory": FIXED + read,  # an hf:// source is downloaded here
        "Load": FIXED + read,
        "Warm": FIXED + 4 * once,
        # Each shape in all of its steps where the pipeline cannot be rehearsed, and lighter ones where memory runs out.
        "Probe": FIXED + 2 * len(shapes) * whole,
        "WarmAgain": FIXED + once,
        "Revalidate": FIXED + once,
        "Solve": FIXED,
        "Apply": FIXED + read,
        # The proof, once more where memory ran out, two more of a reference that may not repeat itself; and one step.
        "Validate": FIXED + 5 * once,
        "RollBack": 2 * FIXED + read + 4 * once,
    }
    return computed | _stated(environment.get(DEADLINES, ""))


def too_long(phase: Phase, seconds: float) -> str:
    """The one sentence about a phase that is past its deadline."""
    return (
        f"phase {phase} has not ended after {seconds:g} s, its deadline; look at this pod's log and at the storage and "
        f"the device it waits for, or give it longer with {DEADLINES}={phase}=SECONDS in spec.serving.env"
    )


def _seconds(shape: Shape) -> float:
    tokens = math.ceil(shape.width * shape.height * (shape.frames + 3) / TOKEN_PIXELS)
    return tokens * shape.steps / TOKEN_STEPS


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
