"""A session on a tiny pipeline: loaded as the agent loads it, under management, in the smallest placement."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stowplan_agent.accelerators.emulated import EmulatedAccelerator, EmulatedCard
from stowplan_agent.calibration import Machine, Observation, build_record, measure_link
from stowplan_agent.lifecycle.probe import workload_of
from stowplan_agent.lifecycle.session import Session
from stowplan_agent.pipeline import HostedPipeline
from stowplan_agent.planning import seed_placement
from stowplan_agent.weights import WeightsEngine
from stowplan_api.diffusion_deployment import Shape
from stowplan_api.placement import Placement
from stowplan_api.record import CalibrationRecord, Link, ModelIdentity

ALL = ["tiny-wan", "tiny-wan-two-experts", "tiny-flux", "tiny-sdxl", "tiny-qwen", "tiny-ltx", "tiny-image-to-video"]


@contextmanager
def session_of(folder: Path, accelerator: EmulatedAccelerator | None = None) -> Iterator[Session]:
    """The pipeline in a folder, everything streamed or brought in whole."""
    accelerator = accelerator or EmulatedAccelerator(EmulatedCard(capacity_bytes=1 << 30))
    with session_on(HostedPipeline.load(folder, "float32", accelerator.device), accelerator) as session:
        yield session


@contextmanager
def session_on(hosted: HostedPipeline, accelerator: EmulatedAccelerator) -> Iterator[Session]:
    """The same of a pipeline that is in no folder."""
    engine = WeightsEngine(accelerator)
    try:
        engine.adopt(hosted.modules(), lambda parts: seed_placement(parts, ranks=1))
        hosted.deferred.settle_all()
        yield Session(accelerator, hosted, engine)
    finally:
        engine.close()
        accelerator.close()


def shape_of(name: str, steps: int, side: int = 32) -> Shape:
    """The lightest shape that has all parts of a model."""
    frames = {"wan": 5, "ltx": 9, "image": 5}.get(name.split("-")[1], 1)
    return Shape(name="declared", width=side, height=side, frames=frames, steps=steps)


def link_of(session: Session) -> Link:
    """The link of its card."""
    return measure_link(session.accelerator, budget_bytes=8 << 20)


def record_of(session: Session, shape: Shape, observations: tuple[Observation, ...], link: Link) -> CalibrationRecord:
    """One shape's record on the session's card."""
    accelerator = session.accelerator
    machine = Machine(
        node="node", device=accelerator.product, capacity_bytes=accelerator.capacity_bytes(),
        outside_bytes=accelerator.outside_bytes(), reserve_bytes=1 << 20, pinnable_bytes=1 << 30, host_bytes=1 << 30,
    )  # fmt: skip
    identity = ModelIdentity(name="tiny", pipeline="Pipeline", fingerprint="f")
    return build_record(identity, {workload_of(shape): observations}, session.engine.describe(), machine, link)


def put(session: Session, placement: Placement) -> None:
    """Go to a placement; what leaves the device, leaves first."""
    for kept in (False, True):
        for entry in placement.components:
            if (entry.mode == "Resident") is kept:
                session.engine.place(entry)
