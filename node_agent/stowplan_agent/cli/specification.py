"""A deployment's spec from a command line: what the operator would have written, for one process on this machine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from stowplan_api.diffusion_deployment import DiffusionDeploymentSpec
from stowplan_api.model import ContractError, first_problem
from stowplan_api.quantity import parse_quantity

SHAPE: Final = re.compile(r"(?:([a-z0-9.-]+)=)?([0-9]+)x([0-9]+)(?:x([0-9]+))?(?:@([0-9]+))?")


def parse_shape(text: str) -> dict[str, Any]:
    """A shape such as 832x480x81@40 or portrait=480x832@28: WIDTHxHEIGHT[xFRAMES][@STEPS]. Raises ValueError."""
    match = SHAPE.fullmatch(text)
    if match is None:
        raise ValueError(f"shape {text!r} is not WIDTHxHEIGHT[xFRAMES][@STEPS]; write 832x480x81@40 or 1024x1024@28")
    name, width, height, frames, steps = match.groups()
    return {
        "name": name or text.split("@")[0].lower(),
        "width": int(width),
        "height": int(height),
        "frames": int(frames or 1),
        "steps": int(steps or 20),
    }


def local_spec(
    path: Path,
    shapes: list[str],
    *,
    dtype: str,
    device_memory: str | None,
    device_reserve: str | None,
    host_memory: str | None,
    port: int | None = None,
) -> DiffusionDeploymentSpec:
    """The spec of a checkpoint folder. Raises `ContractError` in one sentence."""
    try:
        data: dict[str, Any] = {
            "model": {"source": path.absolute().as_uri(), "dtype": dtype},
            "workload": {"shapes": [parse_shape(shape) for shape in shapes]},
            "resources": {
                "gpus": 1,
                "memory": parse_quantity(host_memory) if host_memory else (1 << 62),
                "deviceMemory": parse_quantity(device_memory) if device_memory else None,
            },
            "residency": {"deviceReserve": parse_quantity(device_reserve) if device_reserve else None},
        }
    except ValueError as error:
        raise ContractError(str(error)) from None
    if port is not None:
        data["serving"] = {"port": port}
    try:
        return DiffusionDeploymentSpec.model_validate(data)
    except ValidationError as error:
        raise ContractError(first_problem(error, "command line", "spec")) from None
