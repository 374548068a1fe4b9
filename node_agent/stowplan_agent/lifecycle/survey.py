"""What is known before a weight is read: the device, the checkpoint's headers, and the limits of this pod.

Whatever cannot work is refused here, by name and with numbers, while nothing has been loaded yet.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from stowplan_agent import inventory
from stowplan_agent.accelerators import Accelerator, open_accelerator
from stowplan_agent.accelerators.choice import AcceleratorError
from stowplan_agent.calibration import Machine
from stowplan_agent.inventory.frames import FrameContract, frame_contract
from stowplan_agent.lifecycle.errors import StartError
from stowplan_agent.lifecycle.limits import read_machine
from stowplan_agent.lifecycle.preferences import check_names
from stowplan_agent.lifecycle.settings import StartSettings
from stowplan_api.contract import PlacementReason
from stowplan_api.diffusion_deployment import DiffusionDeploymentSpec

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Survey:
    """One pod before it loads. Whoever holds it closes the accelerator."""

    accelerator: Accelerator
    checkpoint: inventory.Checkpoint
    found: inventory.Inventory
    """By headers alone."""
    contract: FrameContract
    """Which lighter shapes there are."""
    machine: Machine


def take_survey(settings: StartSettings) -> Survey:
    """Open the device, read headers, configs and limits. Raises `StartError` with nothing left open."""
    try:
        accelerator = open_accelerator(
            settings.accelerator,
            ceiling_bytes=settings.spec.resources.device_memory,
            environment=settings.environment,
        )
    except AcceleratorError as error:
        raise StartError(PlacementReason.SPEC_INVALID, str(error)) from error
    settings.faults.watch(accelerator)
    try:
        return _survey(settings, accelerator)
    except BaseException:
        accelerator.close()
        raise


def _survey(settings: StartSettings, accelerator: Accelerator) -> Survey:
    spec = settings.spec
    try:
        path = inventory.resolve_source(spec.model.source, pvc_root=settings.claims, revision=spec.model.revision)
        checkpoint = inventory.read_checkpoint(path)
        if (known := inventory.diffusers_classes()) is not None:
            inventory.check_classes(checkpoint, known)
        found = inventory.take_inventory(checkpoint, spec.model.dtype)
        loaded = inventory.inventory_as_loaded(checkpoint, spec.model.dtype)
    except inventory.InventoryError as error:
        raise StartError(PlacementReason.MODEL_INVALID, str(error)) from error
    contract = _checked(spec, checkpoint)
    for part in loaded.components:
        if part.uncertain is not None:
            _log.warning("component %s is counted by its headers alone: %s", part.name, part.uncertain)
    try:
        machine = read_machine(settings, accelerator, loaded)
    except inventory.InventoryError as error:
        raise StartError(PlacementReason.OUT_OF_MEMORY, str(error)) from error
    return Survey(accelerator, checkpoint, found, contract, machine)


def _checked(spec: DiffusionDeploymentSpec, checkpoint: inventory.Checkpoint) -> FrameContract:
    """The model's frame contract, once the spec was found to suit the model. Raises `StartError`."""
    if spec.resources.gpus > 1:
        raise StartError(
            PlacementReason.SPEC_INVALID,
            f"resources.gpus is {spec.resources.gpus}, and a pod of this version runs on one device; set 1",
        )
    for shape in spec.workload.shapes:
        try:
            inventory.check_shape(checkpoint, shape.width, shape.height, shape.frames)
        except inventory.InventoryError as error:
            raise StartError(PlacementReason.SPEC_INVALID, f"shape {shape.name}: {error}") from error
    try:
        contract = frame_contract(checkpoint)
    except inventory.InventoryError as error:
        raise StartError(PlacementReason.MODEL_INVALID, str(error)) from error
    check_names(spec.residency, [part.name for part in checkpoint.weighted], checkpoint.pipeline)
    return contract
