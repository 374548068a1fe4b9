"""A deployment's spec from a command line: what the operator would have written, for one process on this machine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from stowplan_api.diffusion_deployment import DiffusionDeploymentSpec
from stowplan_api.model import ContractError, first_problem
from stowplan_api.quantity import MOST, parse_quantity

ONE_SHAPE_HELP: Final = "Width x height x frames @ steps: 832x480x81@40, or 1024x1024 for 1 frame and 20 steps."
"""Help of a ``--shape`` that is given once, where there is no room for the form in one piece."""
SHAPE_HELP: Final = r"WIDTHxHEIGHT\[xFRAMES]\[@STEPS], 1 frame and 20 steps unless given; may be repeated."
"""Help of ``--shape``; typer reads help as markup, where an open bracket is escaped."""
SHAPE: Final = re.compile(r"(?:([a-z0-9.-]+)=)?([0-9]{1,9})x([0-9]{1,9})(?:x([0-9]{1,9}))?(?:@([0-9]{1,9}))?")


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
    gpus: int = 1,
) -> DiffusionDeploymentSpec:
    """The spec of a checkpoint folder. Raises `ContractError` in one sentence."""
    resources: dict[str, Any] = {"gpus": gpus, "memory": MOST}
    residency: dict[str, Any] = {}
    for option, text, fields, field in (
        ("--host-memory", host_memory, resources, "memory"),
        ("--device-memory", device_memory, resources, "deviceMemory"),
        ("--device-reserve", device_reserve, residency, "deviceReserve"),
    ):
        if text is not None:
            fields[field] = _bytes(option, text)
    try:
        parsed = [parse_shape(shape) for shape in shapes]
    except ValueError as error:
        raise ContractError(str(error)) from None
    names = [shape["name"] for shape in parsed]
    for name in names:
        if names.count(name) > 1:
            raise ContractError(f"--shape: two shapes are called {name}; give each a name, as in slow=832x480x81@40")
    data: dict[str, Any] = {
        "model": {"source": path.absolute().as_uri(), "dtype": dtype},
        "workload": {"shapes": parsed},
        "resources": resources,
        "residency": residency,
    }
    if port is not None:
        data["serving"] = {"port": port}
    try:
        return DiffusionDeploymentSpec.model_validate(data)
    except ValidationError as error:
        raise ContractError(first_problem(error, "command line", "spec")) from None


def _bytes(option: str, text: str) -> int:
    try:
        return parse_quantity(text)
    except ValueError as error:
        raise ContractError(f"{option}: {error}") from None
