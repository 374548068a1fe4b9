"""A pipeline under the weights engine on a card that is made smaller: what benchmarks of placements share."""

from __future__ import annotations

import gc
from typing import Any

import torch

from stowplan_agent.accelerators import Accelerator
from stowplan_agent.accelerators.cuda_memory import ceiling_share
from stowplan_agent.calibration import Machine, build_record, measure_link, with_fragmentation
from stowplan_agent.lifecycle.probe import workload_of
from stowplan_agent.lifecycle.seed import with_pins
from stowplan_agent.lifecycle.session import Session
from stowplan_agent.pipeline import HostedPipeline
from stowplan_agent.pipeline.deferred import Deferred
from stowplan_agent.planning import moves, seed_placement
from stowplan_agent.transaction import Measured
from stowplan_agent.weights import WeightsEngine
from stowplan_api.diffusion_deployment import Shape
from stowplan_api.placement import Placement
from stowplan_api.record import CalibrationRecord, ModelIdentity


def cap(accelerator: Accelerator, card_bytes: int) -> None:
    """Let torch's allocator take no more than a card of this size would give, as `CudaMemory` does at a start."""
    gc.collect()
    accelerator.empty_cache()
    if accelerator.name == "cuda":
        total = torch.cuda.get_device_properties(accelerator.device).total_memory
        share = ceiling_share(total, card_bytes, accelerator.outside_bytes())
        torch.cuda.set_per_process_memory_fraction(share, accelerator.device)


def adopt(pipeline: Any, accelerator: Accelerator, host_bytes: int) -> Session:
    """The pipeline in the smallest placement, locked."""
    hosted = HostedPipeline(pipeline, accelerator.device, Deferred())
    engine = WeightsEngine(accelerator)
    engine.adopt(hosted.modules(), lambda parts: with_pins(seed_placement(parts, ranks=1), parts, host_bytes))
    gc.collect()
    return Session(accelerator, hosted, engine)


def record_of(
    session: Session, shape: Shape, card_bytes: int, host_bytes: int, reserve_bytes: int | None
) -> tuple[CalibrationRecord, Measured]:
    """The record of one watched request in the placement in force, after a short one; and what was measured."""
    accelerator = session.accelerator
    link = measure_link(accelerator, budget_bytes=min(2 << 30, card_bytes // 8))
    _, fresh = session.watch(one_step(shape), link, fresh=True)
    measured, watched = session.watch(shape, link)
    machine = Machine(
        node="node", device=accelerator.product, capacity_bytes=card_bytes,
        outside_bytes=accelerator.outside_bytes(), reserve_bytes=reserve_bytes,
        pinnable_bytes=host_bytes, host_bytes=host_bytes,
    )  # fmt: skip
    identity = ModelIdentity(name="wan-14b", pipeline="WanPipeline", fingerprint="random")
    shapes = {workload_of(shape): with_fragmentation(watched, fresh)}
    return build_record(identity, shapes, session.engine.describe(), machine, link), measured


def place(session: Session, record: CalibrationRecord, placement: Placement) -> None:
    """Go there, by safe moves where there are any. Host copies are kept: the next move needs no byte read back.

    Raises torch.OutOfMemoryError.
    """
    engine = session.engine
    session.accelerator.empty_cache()
    ordered = moves(record, session.placement(), placement)
    if ordered is None:  # none is safe: everything leaves first
        parts = record.components
        for entry in with_pins(seed_placement(parts, ranks=1), parts, record.nodes[0].pinnable_bytes).components:
            engine.place(entry)
    for move in ordered or ():
        engine.place(move.to)
    for entry in placement.components:
        if engine.entry(entry.name) != entry:
            engine.place(entry)
    session.accelerator.synchronize()


def one_step(shape: Shape) -> Shape:
    return shape.model_copy(update={"steps": 1})
