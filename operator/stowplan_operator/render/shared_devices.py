"""A card that several pods take turns on: what one of them may use is not what the card has, and nobody tells it.

A plan for the whole card would then fail, or starve the others. So a pod that does not state ``deviceMemory`` asks for
whole cards only: a resource that is named a share is refused, and nodes that say they share theirs are left out.
"""

from __future__ import annotations

from typing import Final

from stowplan_api.contract import SERVER_CONTAINER
from stowplan_api.diffusion_deployment import DiffusionDeploymentSpec
from stowplan_operator.kinds import Json

SHARED_SUFFIX: Final = ".shared"
"""NVIDIA's device plugin names time-sliced and MPS resources so where ``renameByDefault`` is on, MIG's as well."""
SHARING_LABEL: Final = "nvidia.com/gpu.sharing-strategy"
"""By GPU feature discovery, from 0.15 on: none, time-slicing or mps. A node without it is taken for one that shares
nothing."""
SHARED: Final = ("mps", "time-slicing")
_VENDOR: Final = "nvidia.com/"


class SharedDeviceError(ValueError):
    """A share of a card is asked for, without a word about how much of it. The message is one sentence."""


def whole_devices(template: Json, spec: DiffusionDeploymentSpec) -> Json:
    """The template, kept away from shared devices unless ``deviceMemory`` is stated; ``template`` is not changed.

    Every alternative of a node affinity that is there already gets the condition too. Raises `SharedDeviceError`.
    """
    if spec.resources.device_memory is not None:
        return template
    asked = _asked(template)
    shared = next((name for name in asked if name.endswith(SHARED_SUFFIX)), "")
    if shared:
        raise SharedDeviceError(
            f"{shared} is a share of a device; state spec.resources.deviceMemory, the part of it that this pod may "
            "take, or ask for whole devices"
        )
    if not any(name.startswith(_VENDOR) for name in asked):
        return template
    return template | {"spec": template["spec"] | {"affinity": _affinity(template["spec"].get("affinity") or {})}}


def _asked(template: Json) -> list[str]:
    """Resources of the server container, whoever asks for them."""
    server = next(one for one in template["spec"]["containers"] if one["name"] == SERVER_CONTAINER)
    limits = (server.get("resources") or {}).get("limits") or {}
    return sorted(name for name, amount in limits.items() if str(amount) != "0")


def _affinity(affinity: Json) -> Json:
    nodes: Json = affinity.get("nodeAffinity") or {}
    required: Json = nodes.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    whole = {"key": SHARING_LABEL, "operator": "NotIn", "values": list(SHARED)}
    alternatives: list[Json] = required.get("nodeSelectorTerms") or [{}]
    terms = [term | {"matchExpressions": [*(term.get("matchExpressions") or ()), whole]} for term in alternatives]
    required = required | {"nodeSelectorTerms": terms}
    return affinity | {"nodeAffinity": nodes | {"requiredDuringSchedulingIgnoredDuringExecution": required}}
