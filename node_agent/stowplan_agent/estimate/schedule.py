"""How many passes each denoiser of a pipeline makes, from its configs: guidance, and who takes which steps.

Two experts share the steps at a boundary of noise (Wan 2.2): with N steps and flow shift s, step i has the noise
s t / (1 + (s - 1) t) at t = 1 - i / N, and the first expert runs where that is at least the boundary. For 40 steps, a
boundary of 0.875 and shifts of 3, 5 and 12 that is 13, 17 and 26 (PLANNING.md, section 1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from stowplan_agent.inventory import Checkpoint
from stowplan_api.model import ContractError

ROUNDING: Final = 1e-9
"""A step that lies on the boundary but for rounding belongs to the first expert, as in PLANNING.md's numbers."""
LEAST_SHIFT: Final = 0.001
MOST_SHIFT: Final = 1000
"""What a record may say of its flow shift."""


def passes_of(
    checkpoint: Checkpoint, denoisers: Sequence[str], configs: Mapping[str, Mapping[str, Any]], steps: int
) -> dict[str, int]:
    """Passes of each of ``denoisers`` (in the order of the index) over ``steps`` steps."""
    boundary = checkpoint.settings.get("boundary_ratio")
    if len(denoisers) == 2 and isinstance(boundary, (int, float)) and not isinstance(boundary, bool):
        early = steps_of_first(steps, float(boundary), flow_shift(checkpoint))
        taken = dict(zip(denoisers, (early, steps - early), strict=True))
    else:
        taken = dict.fromkeys(denoisers, steps)
    return {name: count * passes_a_step(configs[name]) for name, count in taken.items()}


def passes_a_step(config: Mapping[str, Any]) -> int:
    """1 for a denoiser that was distilled to take guidance as a number; 2 (with and without the prompt) otherwise."""
    return 1 if config.get("guidance_embeds") is True else 2


def steps_of_first(steps: int, boundary: float, shift: float) -> int:
    """Steps whose noise is at least ``boundary``: those of the first of two experts."""
    times = (1 - step / steps for step in range(steps))
    return sum(shift * time / (1 + (shift - 1) * time) >= boundary - ROUNDING for time in times)


def flow_shift(checkpoint: Checkpoint) -> float:
    """The shift of the schedule, from the scheduler's config; 1 where it has none.

    Raises `ContractError` for one that is no shift: passes are not guessed from it.
    """
    for part in checkpoint.components:
        for key in ("flow_shift", "shift") if "scheduler" in part.name else ():
            value = part.config.get(key)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not LEAST_SHIFT <= value <= MOST_SHIFT:
                raise ContractError(
                    f"{part.name}: {key} of its config is {value!r:.40}; make it one from {LEAST_SHIFT} to {MOST_SHIFT}"
                )
            return float(value)
    return 1.0
