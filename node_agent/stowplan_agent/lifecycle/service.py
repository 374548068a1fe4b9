"""From the front door to the pipeline: admission by declared shape, the run of one request, and recovery after one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch

from stowplan_agent import inventory
from stowplan_agent.accelerators.shortage import first_sentence
from stowplan_agent.inventory.frames import FrameContract
from stowplan_agent.lifecycle.admission import refusal
from stowplan_agent.lifecycle.orders import to_serve
from stowplan_agent.lifecycle.prediction import Promise, Size, as_called, promise, promises
from stowplan_agent.lifecycle.preparation import Prepared
from stowplan_agent.lifecycle.session import recover, timeline_of
from stowplan_agent.lifecycle.stage_seconds import StageSeconds, streamed_components
from stowplan_agent.pipeline import PipelineRequest
from stowplan_agent.pipeline.request import Stopped
from stowplan_agent.serving.bodies import ServingDefaults
from stowplan_agent.serving.drift import DriftWatch
from stowplan_agent.serving.metrics import AgentMetrics
from stowplan_agent.serving.requests import Cancelled, GenerationRequest, GenerationResult, Refused
from stowplan_agent.transaction import Measured
from stowplan_api.diffusion_deployment import DiffusionDeploymentSpec
from stowplan_api.record import Workload

FPS = 16
"""Frames a second of the videos: what Wan was trained at."""


@dataclass(frozen=True)
class Service:
    """Serves requests on a validated placement."""

    prepared: Prepared
    spec: DiffusionDeploymentSpec
    checkpoint: inventory.Checkpoint
    metrics: AgentMetrics
    drift: DriftWatch | None = None
    """Who hears what each request took."""

    @cached_property
    def promised(self) -> Mapping[Size, tuple[Workload, Promise]]:
        """What was promised of the declared shapes in the placement in force."""
        return promises(self.prepared.record, self.prepared.session.placement())

    @cached_property
    def streamed(self) -> frozenset[str]:
        """The components of which the placement in force copies layers in while they run."""
        return streamed_components(self.prepared.record.components, self.prepared.session.placement())

    def admit(self, request: GenerationRequest) -> None:
        """Refuse, with numbers, what is larger than what was measured: the declared shapes, the longest prompt."""
        pipeline = self.prepared.session.pipeline
        if pipeline.needs_image:
            raise Refused(f"{self.checkpoint.pipeline} begins with an image, and requests of this version have none")
        if (too_long := pipeline.prompts.refusal(request.prompt, request.negative_prompt)) is not None:
            raise Refused(too_long)
        try:
            inventory.check_shape(self.checkpoint, request.width, request.height, request.frames)
        except inventory.InventoryError as error:
            raise Refused(str(error)) from None
        prepared, contract = self.prepared, inventory.frame_contract(self.checkpoint)
        reason = refusal(
            prepared.record, prepared.session.placement(), contract, request.width, request.height, request.frames
        )
        if reason is not None:
            raise Refused(reason)

    def run(self, request: GenerationRequest, cancelled: Callable[[], bool]) -> GenerationResult:
        """Run one request; images of one prompt one after another, each with its own seed.

        Raises `Cancelled`, and torch.OutOfMemoryError with torch's numbers, holding none of the request's memory.
        """
        session = self.prepared.session
        made: list[npt.NDArray[np.uint8]] = []
        seconds = 0.0
        for number in range(request.count):
            single = PipelineRequest(
                width=request.width,
                height=request.height,
                frames=request.frames,
                steps=request.steps,
                prompt=request.prompt,
                negative_prompt=request.negative_prompt,
                guidance=request.guidance,
                seed=request.seed + number,
            )
            session.company.order(to_serve(single))
            stages = StageSeconds(session.accelerator, self.streamed)
            try:
                frames, measured = session.serve(single, timeline_of(self.prepared.record, single), cancelled, stages)
            except Stopped:
                raise Cancelled from None
            except torch.OutOfMemoryError as error:
                raise torch.OutOfMemoryError(first_sentence(error)) from None
            made.append((np.clip(frames, 0.0, 1.0) * 255.0).round().astype(np.uint8))
            assert measured.seconds is not None
            seconds += measured.seconds
            self.metrics.observe_stages(stages.seconds(), waited=stages.waited())
            self._compare(single, measured, stages.calls())
        self.metrics.set_streamed(session.engine.ledger.streamed_bytes)
        return GenerationResult(frames=np.concatenate(made), seconds=seconds, fps=FPS)

    def _compare(self, request: PipelineRequest, measured: Measured, calls: Mapping[str, int]) -> None:
        """What a request of a declared shape took, beside what was promised of it.

        Promised is what was measured, with the pipeline's own guidance: without it half of the passes are run, or each
        of them with half of the batch. A negative prompt may double the passes; seconds are those of the passes that
        this request made.
        """
        promised = self.promised.get((request.width, request.height, request.frames))
        if self.drift is None or promised is None or request.guidance is not None:
            return
        workload, usual = promised
        seconds = self._seconds_of(workload, calls) if workload.steps == request.steps else None
        self.drift.observe(
            seconds_ratio=measured.seconds / seconds if seconds and measured.seconds is not None else None,
            peak_ratio=measured.peak_bytes / usual.peak_bytes,
        )

    def _seconds_of(self, workload: Workload, calls: Mapping[str, int]) -> float | None:
        """What a request of a workload was to take that called its components so often; None where nobody can say."""
        record = as_called(self.prepared.record, workload, calls)
        return None if record is None else promise(record, self.prepared.session.placement(), workload).seconds

    def recover(self) -> None:
        """After a failed request."""
        recover(self.prepared.session)


def serving_defaults(
    spec: DiffusionDeploymentSpec, contract: FrameContract, environment: Mapping[str, str]
) -> ServingDefaults:
    """What a request that leaves things open gets: the default shape."""
    shape = spec.workload.shapes[0]
    return ServingDefaults(
        model=environment.get("STOWPLAN_DEPLOYMENT") or spec.model.source.rstrip("/").rsplit("/", 1)[-1],
        kind="image" if contract.temporal is None else "video",
        width=shape.width,
        height=shape.height,
        steps=shape.steps,
        frames=shape.frames,
        fps=FPS,
        size_multiple=contract.side,
        frame_stride=contract.temporal or 1,
    )
