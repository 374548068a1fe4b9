"""A card that other pods use as well: what this one may take of it is for its spec to say, and is never guessed.

The operator keeps pods without ``deviceMemory`` away from devices that say they are shared. Some say nothing until
one is on them: a device plugin that shares cards under their plain name, on a node without a label. The pod sees it: by
the pipe of an MPS daemon that the plugin gave it, or by memory that somebody else holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from stowplan_agent.accelerators.facts import DeviceFacts
from stowplan_agent.lifecycle.errors import StartError
from stowplan_api.contract import Env, PlacementReason
from stowplan_api.diffusion_deployment import DiffusionDeploymentSpec
from stowplan_api.quantity import for_people

MPS_PIPE: Final = "CUDA_MPS_PIPE_DIRECTORY"
"""Set in the containers of pods that share a card by MPS (NVIDIA's device plugin; CUDA MPS documentation)."""
SOMEBODYS: Final = 1 << 30
"""Bytes held by others from which on they are another model. Below it lie what a monitor's context takes and, by old
drivers' account, what the driver keeps for itself."""
_WAY_OUT: Final = "state spec.resources.deviceMemory, the part of it that this pod may take, or use a whole device"


def refuse_shared(spec: DiffusionDeploymentSpec, facts: DeviceFacts | None, environment: Mapping[str, str]) -> None:
    """Raises `StartError` (SharedDevice) in a pod that states no ``deviceMemory`` and is not alone on its card.

    ``facts`` are of before this process held anything there. Outside a pod nothing is refused: who sits at a machine
    knows what else runs on it.
    """
    if spec.resources.device_memory is not None or not environment.get(Env.POD_NAME):
        return
    if environment.get(MPS_PIPE):
        raise StartError(PlacementReason.SHARED_DEVICE, f"this pod shares its device by MPS; {_WAY_OUT}")
    held = 0 if facts is None else facts.used_bytes or 0
    if facts is not None and held >= SOMEBODYS:
        raise StartError(
            PlacementReason.SHARED_DEVICE,
            f"another process holds {for_people(held)} of {facts.product or 'the device'}; {_WAY_OUT}",
        )
