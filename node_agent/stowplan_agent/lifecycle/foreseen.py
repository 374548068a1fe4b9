"""Whether a declared shape is worth a try: what the bounded request says of it, against the memory that is free.

RUNTIME.md, Probe: before it, the estimate must fit free memory less max(1 GiB, 2 %). The estimate is the least that the
shape can need (`calibration.foresight`) in the placement in force, so that nothing which may fit is given up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stowplan_agent.calibration import Extent, Machine, Observation, at_least, build_record
from stowplan_agent.inventory.frames import FrameContract
from stowplan_agent.lifecycle.limits import probe_margin
from stowplan_agent.lifecycle.session import Session
from stowplan_agent.planning import cost
from stowplan_api.diffusion_deployment import Shape
from stowplan_api.record import CalibrationRecord, Link, ModelIdentity, Workload

NAMELESS = ModelIdentity(name="foreseen", pipeline="foreseen", fingerprint="foreseen")


@dataclass(frozen=True)
class Foresight:
    """One start's: the placement is that in force when it is asked."""

    session: Session
    contract: FrameContract
    link: Link
    machine: Machine

    def shortage(self, warmed: Shape, watched: Sequence[Observation], shape: Shape) -> int:
        """Bytes of device memory that ``shape`` is certain to be short of; 0 where it may fit.

        ``watched`` are the observations of the lighter request ``warmed``.
        """
        modules = self.session.pipeline.modules().items()
        tiled = [name for name, module in modules if getattr(module, "use_tiling", False) is True]
        least = at_least(watched, self._extent(warmed), self._extent(shape), tiled)
        price = cost(self._record(shape, least), self.session.placement())
        need = max(ranks[0] for ranks in price.device_bytes)
        return max(0, need + probe_margin(self.machine) - self.machine.capacity_bytes)

    def _extent(self, shape: Shape) -> Extent:
        patches = (shape.width // self.contract.side) * (shape.height // self.contract.side)
        frames = (shape.frames - 1) // (self.contract.temporal or 1) + 1
        prompt = self.session.pipeline.prompts.longest or 0
        return Extent(shape.width * shape.height, patches * frames + prompt)

    def _record(self, shape: Shape, observations: Sequence[Observation]) -> CalibrationRecord:
        workload = Workload(
            name=shape.name, width=shape.width, height=shape.height, frames=shape.frames, steps=shape.steps
        )
        parts = self.session.engine.describe()
        return build_record(NAMELESS, {workload: observations}, parts, self.machine, self.link)
