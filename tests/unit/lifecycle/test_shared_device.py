"""A pod that is not alone on its card, and does not say how much of it it may take, is refused before it loads."""

from __future__ import annotations

from typing import Any

import pytest

from stowplan_agent.accelerators.emulated import EmulatedAccelerator, EmulatedCard
from stowplan_agent.accelerators.facts import DeviceFacts
from stowplan_agent.lifecycle.errors import StartError
from stowplan_agent.lifecycle.limits import read_machine
from stowplan_agent.lifecycle.settings import StartSettings
from stowplan_agent.lifecycle.shared_device import SOMEBODYS, refuse_shared
from stowplan_api.contract import PlacementReason
from stowplan_api.diffusion_deployment import DiffusionDeploymentSpec

GIB = 1 << 30
POD = {"STOWPLAN_POD_NAME": "wan-abc"}
MPS = POD | {"CUDA_MPS_PIPE_DIRECTORY": "/mps/nvidia.com/gpu/pipe"}


def spec(**resources: Any) -> DiffusionDeploymentSpec:
    shape = {"name": "clip", "width": 64, "height": 64, "frames": 9, "steps": 4}
    return DiffusionDeploymentSpec.model_validate(
        {
            "model": {"source": "file:///models/tiny"},
            "workload": {"shapes": [shape]},
            "resources": {"gpus": 1, "memory": "2Gi"} | resources,
        }
    )


def held(nbytes: int | None) -> DeviceFacts:
    return DeviceFacts(product="NVIDIA L4", memory_bytes=24 * GIB, used_bytes=nbytes)


@pytest.mark.parametrize(
    ("facts", "environment", "message"),
    [
        (held(9 * GIB), POD, "another process holds 9 GiB of NVIDIA L4; state spec.resources.deviceMemory"),
        (held(SOMEBODYS), POD, "another process holds 1 GiB of NVIDIA L4"),
        (held(0), MPS, "this pod shares its device by MPS; state spec.resources.deviceMemory"),
        (None, MPS, "this pod shares its device by MPS"),
    ],
    ids=["a neighbour's model", "just as much", "MPS", "MPS without NVML"],
)
def test_not_alone_and_nothing_stated_is_refused(
    facts: DeviceFacts | None, environment: dict[str, str], message: str
) -> None:
    with pytest.raises(StartError, match=message) as error:
        refuse_shared(spec(), facts, environment)
    assert error.value.reason is PlacementReason.SHARED_DEVICE


@pytest.mark.parametrize(
    ("resources", "facts", "environment"),
    [
        ({}, held(SOMEBODYS - 1), POD),
        ({}, held(None), POD),
        ({}, None, POD),
        ({}, held(9 * GIB), {}),
        ({"deviceMemory": "8Gi"}, held(9 * GIB), MPS),
    ],
    ids=["a monitor", "NVML withholds it", "no NVML", "not in a pod", "stated"],
)
def test_alone_or_unknown_or_stated_is_not(
    resources: dict[str, str], facts: DeviceFacts | None, environment: dict[str, str]
) -> None:
    refuse_shared(spec(**resources), facts, environment)


def test_it_is_refused_before_anything_else_is_asked_of_the_machine() -> None:
    card = EmulatedAccelerator(EmulatedCard(24 << 20, 0))
    card.facts = held(9 * GIB)
    settings = StartSettings(spec(), "emulated", environment=POD)
    with pytest.raises(StartError) as error:
        read_machine(settings, card, None)  # type: ignore[arg-type]
    assert error.value.reason is PlacementReason.SHARED_DEVICE
    card.close()
