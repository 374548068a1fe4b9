"""How long a pod may take from its start to a validated placement, computed from what the spec says.

A deadline that is too short reports a healthy rollout as failed; one that is too long only reports later. So every rate
here is one that slow hardware still reaches, and the result is an upper bound, not an estimate.
"""

from __future__ import annotations

from typing import Final

from stowplan_api.diffusion_deployment import DiffusionDeploymentSpec, Shape

LOAD_BYTES_PER_SECOND: Final = 100_000_000
"""A checkpoint over a 1 Gbit/s network or from a hub."""
TOKEN_STEPS_PER_SECOND: Final = 500
"""Denoised tokens a second. An 832x480x81 video is 32,760 tokens; ten times slower than one H200 on a 14 B model."""
SPATIAL_STRIDE: Final = 16
"""Pixels of an edge in one token: a VAE of 8 times a patch of 2."""
TEMPORAL_STRIDE: Final = 4
PROOFS: Final = 3
"""Requests at the slowest shape beside the probe's: validation, and after a rollback the repeated proof and a retry."""
FIXED_SECONDS: Final = 600
"""Image pull, process start, imports, bounded warm-up requests, the solver."""
LONGEST_SECONDS: Final = 86_400


def request_seconds(shape: Shape) -> int:
    """Upper bound in seconds of one request of a shape."""
    rows = -(-shape.height // SPATIAL_STRIDE)
    columns = -(-shape.width // SPATIAL_STRIDE)
    latent_frames = 1 + (shape.frames - 1) // TEMPORAL_STRIDE
    return -(-rows * columns * latent_frames * shape.steps // TOKEN_STEPS_PER_SECOND)


def progress_deadline_seconds(spec: DiffusionDeploymentSpec) -> int:
    """The rollout's deadline in seconds: the user's own, else load + warm + probe + apply + validate + roll back.

    What can be loaded is bounded by the memory limit, so that stands for the size of the checkpoint; what comes from a
    hub is downloaded first and read then. The probe runs every shape, proofs run at the slowest. Kubernetes refuses
    nothing above a day, we stop there.
    """
    if spec.rollout.progress_deadline_seconds is not None:
        return spec.rollout.progress_deadline_seconds
    reads = 2 if spec.model.source.startswith("hf://") else 1
    load = reads * (spec.resources.memory // LOAD_BYTES_PER_SECOND)
    requests = [request_seconds(shape) for shape in spec.workload.shapes]
    return min(LONGEST_SECONDS, FIXED_SECONDS + load + sum(requests) + PROOFS * max(requests))
