"""What is known before a weight is read: the device, the checkpoint's headers, and the limits of this pod.

Whatever cannot work is refused here, by name and with numbers, while nothing has been loaded yet.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

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
            index=settings.company.rank,
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
        path = settings.company.in_turn("fetch the checkpoint", lambda: _resolved(settings))
        checkpoint = inventory.read_checkpoint(path)
        if (known := inventory.diffusers_classes()) is not None:
            inventory.check_classes(checkpoint, known)
        found = inventory.take_inventory(checkpoint, spec.model.dtype)
        loaded = inventory.inventory_as_loaded(checkpoint, spec.model.dtype)
    except inventory.InventoryError as error:
        raise StartError(PlacementReason.MODEL_INVALID, str(error)) from error
    contract = _checked(settings, checkpoint)
    for part in loaded.components:
        if part.uncertain is not None:
            _log.warning("component %s is counted by its headers alone: %s", part.name, part.uncertain)
    try:
        machine = read_machine(settings, accelerator, loaded)
    except inventory.InventoryError as error:
        raise StartError(PlacementReason.OUT_OF_MEMORY, str(error)) from error
    return Survey(accelerator, checkpoint, found, contract, machine)


def _resolved(settings: StartSettings) -> Path:
    model = settings.spec.model
    return inventory.resolve_source(model.source, pvc_root=settings.claims, revision=model.revision)


def _checked(settings: StartSettings, checkpoint: inventory.Checkpoint) -> FrameContract:
    """The model's frame contract, once the spec was found to suit the model. Raises `StartError`."""
    spec, ranks = settings.spec, settings.company.ranks
    if spec.ranks != ranks:
        raise StartError(
            PlacementReason.SPEC_INVALID,
            f"the spec is for {spec.ranks} devices, and this is one of {ranks} processes; start it as stowplan agent",
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
