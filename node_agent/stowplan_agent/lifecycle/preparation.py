"""The phases before a plan: inventory, load, warm, probe, warm again. They end with a record and a reference.

Everything is loaded into the seed placement, which needs least of the device. At most two bounded and, with validation,
two full-shape requests are run. Where the declared shape does not fit even so, lighter ones are measured and the record
is extrapolated from them: the planner then says what is short.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import torch

from stowplan_agent import inventory
from stowplan_agent.accelerators import Accelerator, open_accelerator
from stowplan_agent.accelerators.choice import AcceleratorError
from stowplan_agent.calibration import CalibrationError, Machine, build_record, measure_link
from stowplan_agent.inventory.frames import FrameContract, frame_contract
from stowplan_agent.lifecycle.errors import StartError
from stowplan_agent.lifecycle.limits import device_reserve, host_room, read_host, read_machine
from stowplan_agent.lifecycle.preferences import check_fixed, check_names
from stowplan_agent.lifecycle.probe import Probe, Probed, workload_of
from stowplan_agent.lifecycle.seed import with_pins
from stowplan_agent.lifecycle.session import Session, stretches_of
from stowplan_agent.lifecycle.settings import StartSettings
from stowplan_agent.lifecycle.shapes import bounded, describe, work
from stowplan_agent.lifecycle.shortfall import Shortfall
from stowplan_agent.pipeline import HostedPipeline, LoadError
from stowplan_agent.pipeline.completeness import check_layers
from stowplan_agent.planning import seed_placement
from stowplan_agent.transaction import Reference
from stowplan_agent.weights import EntryError, Timeline, WeightsEngine
from stowplan_agent.weights.adoption import AdoptionError
from stowplan_agent.weights.ledger import Tier
from stowplan_agent.weights.timeline import Stretch
from stowplan_api.contract import PlacementReason
from stowplan_api.diffusion_deployment import Shape
from stowplan_api.placement import Placement
from stowplan_api.record import CalibrationRecord, Link, ModelIdentity

_log = logging.getLogger(__name__)
LINK_SHARE: Final = 8
"""The link is measured with at most this part of the device's free memory."""


@dataclass(frozen=True)
class Prepared:
    """What the phases after the probe build on."""

    session: Session
    record: CalibrationRecord
    seed: Placement
    reference: Reference
    reference_shape: Shape
    """What the reference ran: the declared shape in a few steps, or the lighter one that was measured instead."""
    reference_calls: Sequence[Stretch]
    """What that request called."""


class Preparation:
    """Runs the phases in order, each a method; holds what they leave for one another."""

    def __init__(self, settings: StartSettings, stop: Callable[[], bool] = lambda: False) -> None:
        """Nothing is touched yet. ``stop`` ends a request between two steps."""
        self._settings = settings
        self._stop = stop
        self._spec = settings.spec
        self._default = self._spec.workload.shapes[0]
        self._accelerator: Accelerator | None = None
        self._session: Session | None = None

    @property
    def prepared(self) -> Prepared:
        """The result, once the probe has run."""
        return Prepared(
            self.session, self._record, self._seed, self._reference, self._measured_shape, self._measured_calls
        )

    @property
    def checkpoint(self) -> inventory.Checkpoint:
        """The checkpoint's headers and configs, once the inventory was taken."""
        return self._checkpoint

    @property
    def session(self) -> Session:
        """The loaded pipeline, once it was loaded."""
        assert self._session is not None, "Load comes before whatever needs a session"
        return self._session

    def take_inventory(self) -> None:
        """Headers, configs and limits; refuse what cannot work before a weight is read."""
        try:
            self._accelerator = open_accelerator(
                self._settings.accelerator,
                ceiling_bytes=self._spec.resources.device_memory,
                environment=self._settings.environment,
            )
        except AcceleratorError as error:
            raise StartError(PlacementReason.SPEC_INVALID, str(error)) from error
        try:
            path = inventory.resolve_source(
                self._spec.model.source, pvc_root=self._settings.claims, revision=self._spec.model.revision
            )
            self._checkpoint = inventory.read_checkpoint(path)
            if (known := inventory.diffusers_classes()) is not None:
                inventory.check_classes(self._checkpoint, known)
            self._found = inventory.take_inventory(self._checkpoint, self._spec.model.dtype)
            loaded = inventory.inventory_as_loaded(self._checkpoint, self._spec.model.dtype)
        except inventory.InventoryError as error:
            raise StartError(PlacementReason.MODEL_INVALID, str(error)) from error
        self._check_spec()
        for part in loaded.components:
            if part.uncertain is not None:
                _log.warning("component %s is counted by its headers alone: %s", part.name, part.uncertain)
        try:
            self._machine: Machine = read_machine(self._settings, self._accelerator, loaded)
        except inventory.InventoryError as error:
            raise StartError(PlacementReason.OUT_OF_MEMORY, str(error)) from error

    def load(self) -> None:
        """Read the weights straight into the seed placement."""
        accelerator = self._accelerator
        assert accelerator is not None, "Inventory opens the device"
        try:
            pipeline = HostedPipeline.load(self._checkpoint.path, self._spec.model.dtype, accelerator.device)
            check_layers(self._found, pipeline.modules())
            engine = WeightsEngine(accelerator)
            engine.adopt(
                pipeline.modules(),
                lambda parts: seed_placement(parts, ranks=1, host_bytes=self._machine.host_bytes),
                converted_from=pipeline.deferred.source_of,
            )
            pipeline.deferred.settle_all()  # what only a fixed component has
            check_fixed(self._spec.residency.prefer, engine.describe())
            pipeline.rewrite_within(lambda: engine.rewriting(read_host(self._settings).headroom))
            self._session = Session(accelerator, pipeline, engine, stop=self._stop)
            self._heed_refused_locks()
            room = accelerator.capacity_bytes() - accelerator.outside_bytes() - accelerator.counters().allocated
            self._link: Link = measure_link(accelerator, budget_bytes=max(0, room) // LINK_SHARE)
            seed, parts = self._session.placement(), engine.describe()
            self._seed = with_pins(seed, parts, self._machine.pinnable_bytes)
            for entry in self._seed.components:
                engine.place(entry)
        except (LoadError, AdoptionError, EntryError, OSError) as error:
            raise StartError(PlacementReason.MODEL_INVALID, str(error)) from error
        except torch.OutOfMemoryError as error:
            raise self._too_small(Shortfall.of(error, "loading")) from error
        self._probe = Probe(self._session, self._contract, self._link)

    def warm(self) -> None:
        """One bounded request, lighter ones if it runs out of memory."""
        self._tried(self._probe.warm(bounded(self._default, self._contract)))

    def probe(self) -> None:
        """Every declared shape once; where memory runs out, lighter ones, and what follows from them."""
        shapes = self._spec.workload.shapes
        probed = [self._tried(self._probe.measure(shape)) for shape in shapes]
        first = probed[0]
        assert first.measured.seconds is not None
        self._reference = Reference(first.measured.digest, first.measured.seconds)
        self._measured_shape, self._measured_calls = first.shape, stretches_of(first.watched)
        pairs = [(shape, probe.shape) for shape, probe in zip(shapes, probed, strict=True)]
        lighter = [(shape, measured) for shape, measured in pairs if work(measured) != work(shape)]
        device = self._machine.device
        provenance = [f"measured on {self.session.accelerator.facts or device} in the seed placement"]
        provenance += [
            f"{shape.name} was watched for {measured.steps} steps, and the passes of {shape.steps} were counted"
            for shape, measured in pairs
            if measured.steps != shape.steps
        ]
        parts = self.session.engine.describe()
        provenance += [f"{part.name} must stay {part.fixed.mode}: {part.fixed.reason}" for part in parts if part.fixed]
        provenance += [
            f"{shape.name} did not fit {device} and is extrapolated from {describe(measured)}"
            for shape, measured in lighter
        ]
        try:
            self._record = build_record(
                ModelIdentity(
                    name=self._checkpoint.name,
                    pipeline=self._checkpoint.pipeline,
                    fingerprint=inventory.fingerprint(self._checkpoint),
                ),
                {workload_of(shape): probe.observations for shape, probe in zip(shapes, probed, strict=True)},
                parts,
                self._machine_now(),
                self._link,
                provenance=provenance,
                extrapolated=bool(lighter),
            )
        except CalibrationError as error:
            raise StartError(PlacementReason.SPEC_INVALID, str(error)) from error

    def warm_again(self) -> None:
        """The bounded request once more, so that serving starts from a serving-shaped allocator."""
        shape = bounded(self._measured_shape, self._contract)
        try:
            self.session.measure(shape, Timeline())
        except torch.OutOfMemoryError as error:
            raise self._too_small(Shortfall.of(error, "warming up again", shape)) from error

    def close(self) -> None:
        """Give the device and the pipeline back, however far the start came."""
        if self._session is not None:
            self._session.engine.close()
        if self._accelerator is not None:
            self._accelerator.close()

    def _heed_refused_locks(self) -> None:
        """A driver that locks less than the host has is the limit of every plan."""
        locked = self.session.engine.lockable_bytes(self._machine.pinnable_bytes)
        if locked is not None:
            _log.warning("the driver locks no more than %d bytes of host memory", locked)
            self._machine = replace(self._machine, pinnable_bytes=min(self._machine.pinnable_bytes, locked))

    def _machine_now(self) -> Machine:
        """The limits anew, before a plan is made for them: libraries and neighbours have taken memory since."""
        accelerator, ledger, before = self.session.accelerator, self.session.engine.ledger, self._machine
        held = ledger.total(Tier.PINNED) + ledger.total(Tier.PAGEABLE)
        room = host_room(self._settings, accelerator, read_host(self._settings), held_bytes=held)
        refused = before.pinnable_bytes < before.host_bytes
        return replace(
            before,
            outside_bytes=accelerator.outside_bytes(),
            host_bytes=room,
            pinnable_bytes=min(room, before.pinnable_bytes) if refused else room,
        )

    def _check_spec(self) -> None:
        checkpoint, shapes = self._checkpoint, self._spec.workload.shapes
        if self._spec.resources.gpus > 1:
            raise StartError(
                PlacementReason.SPEC_INVALID,
                f"resources.gpus is {self._spec.resources.gpus}, and a pod of this version runs on one device; set 1",
            )
        for shape in shapes:
            try:
                inventory.check_shape(checkpoint, shape.width, shape.height, shape.frames)
            except inventory.InventoryError as error:
                raise StartError(PlacementReason.SPEC_INVALID, f"shape {shape.name}: {error}") from error
        try:
            self._contract: FrameContract = frame_contract(checkpoint)
        except inventory.InventoryError as error:
            raise StartError(PlacementReason.MODEL_INVALID, str(error)) from error
        check_names(self._spec.residency, [part.name for part in checkpoint.weighted], checkpoint.pipeline)

    def _tried(self, outcome: Probed | Shortfall) -> Probed:
        if isinstance(outcome, Shortfall):
            raise self._too_small(outcome)
        return outcome

    def _too_small(self, shortfall: Shortfall) -> StartError:
        reserve = device_reserve(self._machine)
        message = shortfall.sentence(self._checkpoint.name, self._machine, reserve_bytes=reserve)
        return StartError(PlacementReason.OUT_OF_MEMORY, message)
