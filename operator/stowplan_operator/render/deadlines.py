"""How long a pod may take from its start to a validated placement, computed from what the spec says.

A deadline that is too short reports a healthy rollout as failed; one that is too long only reports later. So every rate
here is one that slow hardware still reaches, and the result is an upper bound, not an estimate. Where a request was
measured and took longer than that rate has it, the measured one counts: some cards are slower still. One that was
faster shortens nothing, for what is rolled out now may be another model.
"""

from __future__ import annotations

from typing import Final

from stowplan_api.diffusion_deployment import DiffusionDeploymentSpec, Shape

LOAD_BYTES_PER_SECOND: Final = 100_000_000
"""A checkpoint over a 1 Gbit/s network or from a hub."""
TOKEN_STEPS_PER_SECOND: Final = 500
"""Denoised tokens a second. An 832x480x81 video is 32,760 tokens; ten times slower than one H200 on a 14 B model, and
a card that is slower still says so by what it measures, and by the phase that its pod is in until then."""
SPATIAL_STRIDE: Final = 16
"""Pixels of an edge in one token: a VAE of 8 times a patch of 2."""
TEMPORAL_STRIDE: Final = 4
PROOFS: Final = 3
"""Requests at the slowest shape beside the probe's: validation, and after a rollback the repeated proof and a retry."""
FIXED_SECONDS: Final = 600
"""Image pull, process start, imports, bounded warm-up requests, the solver."""
LONGEST_SECONDS: Final = 86_400
SLACK: Final = 2
"""How many times as long as the measured one a request may take: the first one of a boot, with everything streamed."""


def request_seconds(shape: Shape) -> int:
    """Upper bound in seconds of one request of a shape, of which nothing was measured."""
    return -(-_tokens(shape) * shape.steps // TOKEN_STEPS_PER_SECOND)


def progress_deadline_seconds(spec: DiffusionDeploymentSpec, measured_milliseconds: int | None = None) -> int:
    """The rollout's deadline in seconds: the user's own, else load + warm + probe + apply + validate + roll back.

    What can be loaded is bounded by the memory limit, so that stands for the size of the checkpoint; what comes from a
    hub is downloaded first and read then. The probe runs every shape, proofs run at the slowest. Kubernetes refuses
    nothing above a day, we stop there. ``measured_milliseconds``: of one request at the default shape, the first one.
    """
    if spec.rollout.progress_deadline_seconds is not None:
        return spec.rollout.progress_deadline_seconds
    reads = 2 if spec.model.source.startswith("hf://") else 1
    load = reads * (spec.resources.memory // LOAD_BYTES_PER_SECOND)
    shapes = spec.workload.shapes
    slower = _slower(shapes[0], measured_milliseconds)
    requests = [request_seconds(shape) * slower for shape in shapes]
    return min(LONGEST_SECONDS, FIXED_SECONDS + load + sum(requests) + PROOFS * max(requests))


def _slower(default: Shape, measured_milliseconds: int | None) -> int:
    """How many times slower than the rate above a card is, by what was measured on it, with `SLACK`; 1 at least.

    A power of two: requests that take a little more or less must not change the Deployment each time.
    """
    times = 1
    while times * request_seconds(default) * 1000 < SLACK * (measured_milliseconds or 0) and times < LONGEST_SECONDS:
        times *= 2
    return times


def _tokens(shape: Shape) -> int:
    rows = -(-shape.height // SPATIAL_STRIDE)
    columns = -(-shape.width // SPATIAL_STRIDE)
    return rows * columns * (1 + (shape.frames - 1) // TEMPORAL_STRIDE)
