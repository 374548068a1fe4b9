"""The phases before a plan: inventory, load, warm, probe, warm again. They end with a record and a reference.

Everything is loaded into the seed placement, which needs least of the device. At most two bounded and, with validation,
two full-shape requests are run. Where the declared shape does not fit even so, a lighter one is measured and the record
is marked extrapolated: the planner then says what is short.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch

from stowplan_agent import inventory
from stowplan_agent.accelerators import Accelerator, open_accelerator
from stowplan_agent.accelerators.choice import AcceleratorError
from stowplan_agent.accelerators.shortage import first_sentence, shortage
from stowplan_agent.calibration import CalibrationError, Machine, Observation, build_record, measure_link
from stowplan_agent.inventory.frames import FrameContract, frame_contract
from stowplan_agent.lifecycle.errors import StartError
from stowplan_agent.lifecycle.session import Session
from stowplan_agent.lifecycle.settings import StartSettings
from stowplan_agent.lifecycle.shapes import bounded, describe, lighter, work
from stowplan_agent.pipeline import HostedPipeline, LoadError
from stowplan_agent.planning import seed_placement
from stowplan_agent.transaction import Reference
from stowplan_agent.weights import WeightsEngine
from stowplan_agent.weights.adoption import AdoptionError
from stowplan_api.contract import PlacementReason
from stowplan_api.diffusion_deployment import Shape
from stowplan_api.placement import Placement
from stowplan_api.quantity import for_people
from stowplan_api.record import CalibrationRecord, Component, Fixed, Link, ModelIdentity, Workload

_log = logging.getLogger(__name__)
LIGHTER_TRIES: Final = 3
LINK_SHARE: Final = 8
"""The link is measured with at most this part of the device's memory."""
HOST_RESERVE_SHARE: Final = 20
HOST_RESERVE_LEAST: Final = 256 << 20
"""Host memory left to the process: a twentieth of the limit or 256 MiB, whichever is more, unless the spec says."""


@dataclass(frozen=True)
class Prepared:
    """What the phases after the probe build on."""

    session: Session
    record: CalibrationRecord
    seed: Placement
    reference: Reference
    reference_shape: Shape
    """The declared shape, or the lighter one that was measured instead."""


class Preparation:
    """Runs the phases in order, each a method; holds what they leave for one another."""

    def __init__(self, settings: StartSettings) -> None:
        """Nothing is touched yet."""
        self._settings = settings
        self._spec = settings.spec
        self._default = self._spec.workload.shapes[0]
        self._lightened: Shape | None = None

    @property
    def prepared(self) -> Prepared:
        """The result, once the probe has run."""
        return Prepared(self.session, self._record, self._seed, self._reference, self._measured_shape)

    @property
    def checkpoint(self) -> inventory.Checkpoint:
        """The checkpoint's headers and configs."""
        return self._checkpoint

    def take_inventory(self) -> None:
        """Headers, configs and limits; refuse what cannot work before a weight is read."""
        try:
            self.accelerator: Accelerator = open_accelerator(
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
            self._inventory = inventory.take_inventory(self._checkpoint, self._spec.model.dtype)
        except inventory.InventoryError as error:
            raise StartError(PlacementReason.MODEL_INVALID, str(error)) from error
        try:
            for shape in self._spec.workload.shapes:
                inventory.check_shape(self._checkpoint, shape.width, shape.height, shape.frames)
            self._contract: FrameContract = frame_contract(self._checkpoint)
        except inventory.InventoryError as error:
            raise StartError(PlacementReason.SPEC_INVALID, f"shape {shape.name}: {error}") from error
        self._check_limits()

    def load(self) -> None:
        """Read the weights, take them over, put them into the seed placement."""
        try:
            pipeline = HostedPipeline.load(self._checkpoint.path, self._spec.model.dtype, self.accelerator.device)
            engine = WeightsEngine(self.accelerator)
            engine.adopt(pipeline.modules())
        except (LoadError, AdoptionError) as error:
            raise StartError(PlacementReason.MODEL_INVALID, str(error)) from error
        self.session = Session(self.accelerator, pipeline, engine)
        self._components = self._with_preferences(engine.describe())
        self._seed = seed_placement(self._components, 1)
        try:
            for entry in self._seed.components:
                engine.place(entry)
            self._link: Link = measure_link(
                self.accelerator, budget_bytes=self.accelerator.capacity_bytes() // LINK_SHARE
            )
        except torch.OutOfMemoryError as error:
            raise StartError(PlacementReason.OUT_OF_MEMORY, self._too_small(error, "loading")) from error

    def warm(self) -> None:
        """One bounded request, lighter ones if it runs out of memory."""
        shape: Shape | None = bounded(self._default, self._contract)
        for _ in range(LIGHTER_TRIES + 1):
            assert shape is not None
            try:
                self.session.watch(shape, self._link)
            except torch.OutOfMemoryError as error:
                _log.info("out of memory at %s in %s: %s", describe(shape), self.session.running, error)
                failure = self._too_small(error, self._where(shape))
                last, shape = error, lighter(shape, self._contract)
                if shape is None:
                    break
                self._lightened = shape
            else:
                return
        raise StartError(PlacementReason.OUT_OF_MEMORY, failure) from last

    def probe(self) -> None:
        """Every declared shape once; where memory runs out, the record of a lighter one, extrapolated."""
        observed: dict[Workload, Sequence[Observation]] = {}
        shapes = self._spec.workload.shapes
        scale: float | None = None
        for shape in shapes:
            tried = self._lightened or shape
            while True:
                try:
                    measured, observations = self.session.watch(tried, self._link)
                except torch.OutOfMemoryError as error:
                    _log.info("out of memory at %s in %s: %s", describe(tried), self.session.running, error)
                    smaller = lighter(tried, self._contract)
                    if smaller is None:
                        message = self._too_small(error, self._where(tried))
                        raise StartError(PlacementReason.OUT_OF_MEMORY, message) from error
                    tried = smaller
                else:
                    break
            if tried != shape:
                scale = max(scale or 1.0, work(shape) / work(tried))
            if not observed:
                assert measured.seconds is not None
                self._reference = Reference(measured.digest, measured.seconds)
                self._measured_shape = tried
            observed[_workload(shape)] = observations
        self._record = self._make_record(observed, scale)

    def warm_again(self) -> None:
        """The bounded request once more, so that serving starts from a serving-shaped allocator."""
        try:
            self.session.measure(bounded(self._measured_shape, self._contract), None)
        except torch.OutOfMemoryError as error:
            raise StartError(PlacementReason.OUT_OF_MEMORY, self._too_small(error, "warming up again")) from error

    def _check_limits(self) -> None:
        limits = inventory.read_host_limits(
            self._settings.root, explicit=self._settings.memory_limit, explicit_name="the pod's memory limit"
        )
        emulated = self.accelerator.name == "emulated"
        capacity = self.accelerator.capacity_bytes()
        try:
            inventory.check_need(
                inventory.predict_need(self._inventory),
                device_bytes=capacity,
                device=self.accelerator.product,
                host=limits,
                device_is_host=emulated,
            )
        except inventory.InventoryError as error:
            raise StartError(PlacementReason.OUT_OF_MEMORY, str(error)) from error
        reserve = self._spec.residency.host_reserve
        if reserve is None:
            reserve = max(limits.tightest.limit // HOST_RESERVE_SHARE, HOST_RESERVE_LEAST)
        room = max(0, limits.headroom - reserve - (capacity if emulated else 0))
        self._machine = Machine(
            node="node",
            device=self.accelerator.product,
            capacity_bytes=capacity,
            outside_bytes=self.accelerator.outside_bytes(),
            reserve_bytes=self._spec.residency.device_reserve,
            pinnable_bytes=room,
            host_bytes=room,
        )

    def _with_preferences(self, components: Sequence[Component]) -> tuple[Component, ...]:
        """Components with what the user wants of them. A name that the pipeline lacks is refused."""
        prefer = self._spec.residency.prefer
        known = [component.name for component in components]
        for name in (*prefer.keep, *prefer.never_keep):
            if name not in known:
                raise StartError(
                    PlacementReason.SPEC_INVALID,
                    f"residency.prefer names component {name}, and {self.session.pipeline.name} has {', '.join(known)}",
                )
        fixed = {name: Fixed(mode="Offload", reason="residency.prefer.neverKeep") for name in prefer.never_keep}
        fixed |= {name: Fixed(mode="Resident", reason="residency.prefer.keep") for name in prefer.keep}
        return tuple(part.model_copy(update={"fixed": fixed.get(part.name)}) for part in components)

    def _make_record(self, observed: dict[Workload, Sequence[Observation]], scale: float | None) -> CalibrationRecord:
        try:
            return build_record(
                ModelIdentity(
                    name=self._checkpoint.name,
                    pipeline=self._checkpoint.pipeline,
                    fingerprint=inventory.fingerprint(self._checkpoint),
                ),
                observed,
                self._components,
                self._machine,
                self._link,
                provenance=(f"measured on {self.accelerator.product} in the seed placement",),
                activation_scale=scale,
            )
        except CalibrationError as error:
            raise StartError(PlacementReason.SPEC_INVALID, str(error)) from error

    def _where(self, shape: Shape) -> str:
        return f"{self.session.running} at {describe(shape)}"

    def _too_small(self, error: torch.OutOfMemoryError, where: str) -> str:
        """What is short, at least, where not even a lighter shape could be measured."""
        capacity, reserve = self._machine.capacity_bytes, self._machine.reserve_bytes or 0
        short = shortage(error)
        if short is None:
            need = f"ran out of memory ({first_sentence(error)}); give more device memory than {for_people(capacity)}"
        else:
            need = f"is at least {short} bytes short; at least {for_people(capacity + short + reserve)} would fit"
        return (
            f"{self._checkpoint.name} does not fit {self.accelerator.product} even with everything streamed: "
            f"{where} {need}, or a smaller shape"
        )


def _workload(shape: Shape) -> Workload:
    return Workload(
        name=shape.name,
        weight=shape.weight,
        width=shape.width,
        height=shape.height,
        frames=shape.frames,
        steps=shape.steps,
    )
