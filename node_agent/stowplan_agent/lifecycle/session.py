"""The pipeline, the engine and the device of one process, and the ways to run a request on them.

`measure` judges, `watch` observes, `serve` serves, `rehearse` only counts calls: all but the last go through one place,
so that memory comes back after every request whatever happened in it.
"""

from __future__ import annotations

import gc
import hashlib
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

from stowplan_agent.accelerators import Accelerator
from stowplan_agent.calibration import Answers, Observation, Rehearsal, Watch, observe
from stowplan_agent.lifecycle.seed import pinned_share
from stowplan_agent.pipeline import HostedPipeline, PipelineRequest
from stowplan_agent.pipeline.hosted import Frames
from stowplan_agent.ranks.alone import Alone
from stowplan_agent.transaction import Measured
from stowplan_agent.weights import Timeline, WeightsEngine
from stowplan_agent.weights.observer import Observer
from stowplan_agent.weights.timeline import Stretch
from stowplan_api.diffusion_deployment import Shape
from stowplan_api.placement import Placement
from stowplan_api.record import CalibrationRecord, Link


@dataclass
class Session:
    """One loaded pipeline under management. One thread at a time."""

    accelerator: Accelerator
    pipeline: HostedPipeline
    engine: WeightsEngine
    running: str = "before the first component"
    """Which interval ran last while watched: where memory ran out, if it did."""
    stop: Callable[[], bool] = lambda: False
    """Asked after each step of `watch` and `measure`: true ends the request with `Stopped`."""
    company: Alone = field(default_factory=Alone)
    """The other ranks, which run every request too."""

    def placement(self) -> Placement:
        """Where everything is now."""
        return Placement(components=tuple(self.engine.entry(part.name) for part in self.engine.describe()))

    def check(self) -> None:
        """Compare the ledger with the allocator and the kernel. Raises `LedgerError`."""
        self.engine.check()

    def watch(
        self, shape: Shape, link: Link, answers: Answers | None = None, *, fresh: bool = False
    ) -> tuple[Measured, tuple[Observation, ...]]:
        """Run the shape once and observe its timeline; ``answers`` hear what its components return.

        ``fresh``: for what the allocator takes, at the cost of true seconds (`Watch`).
        """
        watch = Watch(self.accelerator, lambda: self.engine.ledger.streamed_bytes, fresh=fresh)
        self._settle()
        self.engine.timeline = Timeline()
        self.engine.observer = watch
        try:
            watch.begin()
            with nullcontext() if answers is None else answers.heard(self.pipeline.modules()):
                measured, _ = self._run(request_of(shape), self.stop, watch.finish)
        finally:
            self.engine.observer = None
            self.running = watch.running()
        outside = self.accelerator.outside_bytes()
        measured = replace(measured, peak_bytes=watch.peak + outside, reserved_peak_bytes=watch.reserved_peak + outside)
        entries = {entry.name: entry for entry in self.placement().components}
        shares = {part.name: pinned_share(entries[part.name], part) for part in self.engine.describe()}
        return measured, observe(watch.intervals, self.accelerator, link, shares.__getitem__)

    def rehearse(self, shape: Shape, answers: Answers) -> Rehearsal:
        """Let the pipeline run the shape without its components: what it calls.

        ``answers`` are those of a watched request of the same size. Raises what the pipeline raises, and `Stopped`.
        """
        gc.collect()
        rehearsal = Rehearsal(self.pipeline.modules(), answers)
        try:
            with self.accelerator.running(), rehearsal.standing_in():
                self.pipeline.run(request_of(shape), stop=self.company.stops(self.stop))
        finally:
            self.accelerator.empty_cache()
        return rehearsal

    def measure(self, shape: Shape, timeline: Timeline) -> Measured:
        """Run the shape once, with what it is expected to call."""
        return self.output(shape, timeline)[0]

    def output(self, shape: Shape, timeline: Timeline) -> tuple[Measured, Frames]:
        """As `measure`, with the frames."""
        self._settle()
        self.engine.timeline = timeline
        return self._run(request_of(shape), self.stop)

    def serve(
        self, request: PipelineRequest, timeline: Timeline, stop: Callable[[], bool], observer: Observer | None = None
    ) -> tuple[Frames, Measured]:
        """Run a user's request; frames, and what was measured. ``observer`` watches it."""
        self.engine.timeline = timeline
        self.engine.observer = observer
        try:
            measured, frames = self._run(request, stop)
        finally:
            self.engine.observer = None
        return frames, measured

    def _settle(self) -> None:
        """What came before is none of the next request's: tensors in reference cycles, copies of a move that failed.

        Not while serving.
        """
        gc.collect()
        self.accelerator.synchronize()

    def _run(
        self, request: PipelineRequest, stop: Callable[[], bool], ended: Callable[[], None] = lambda: None
    ) -> tuple[Measured, Frames]:
        self.accelerator.reset_peaks()
        start = self.accelerator.record()
        try:
            with self.engine.request():
                stop = self.company.stops(stop)
                frames = self.company.request(lambda: self.pipeline.run(request, stop=stop))
        except BaseException:
            self.accelerator.empty_cache()
            raise
        end = self.accelerator.record()
        ended()  # what is done with the frames from here on is no part of the request
        self.accelerator.synchronize()
        counters = self.accelerator.counters()
        # Read after the request: libraries take their workspaces outside the allocator at first use.
        outside = self.accelerator.outside_bytes()
        measured = Measured(
            digest=hashlib.sha256(frames.tobytes()).hexdigest(),
            seconds=self.accelerator.elapsed(start, end),
            peak_bytes=counters.peak + outside,
            reserved_peak_bytes=counters.reserved_peak + outside,
        )
        return measured, frames


def recover(session: Session) -> None:
    """After a request that failed: collect what its traceback held, and return the cache."""
    gc.collect()
    session.accelerator.empty_cache()


def request_of(shape: Shape) -> PipelineRequest:
    """The request that stands for a declared shape: fixed prompt, fixed seed."""
    return PipelineRequest(width=shape.width, height=shape.height, frames=shape.frames, steps=shape.steps)


def timeline_of(record: CalibrationRecord | None, shape: Shape | PipelineRequest) -> Timeline:
    """What a request of this shape will call, where the record has the shape; else no expectation."""
    if record is None or record.extrapolated:
        return Timeline()
    key = (shape.width, shape.height, shape.frames, shape.steps)
    for workload in record.workloads:
        if (workload.width, workload.height, workload.frames, workload.steps) == key:
            return Timeline(_stretches(record, workload.name))
    return Timeline()


def stretches_of(observations: Sequence[Observation]) -> Sequence[Stretch]:
    """What a watched request called, for the engine to expect it again."""
    return [Stretch(one.component, one.calls, one.passes) for one in observations]


def _stretches(record: CalibrationRecord, workload: str) -> Sequence[Stretch]:
    return [
        Stretch(interval.component, run.passes if run.calls is None else run.calls, run.passes)
        for interval in record.intervals
        for run in interval.runs
        if run.workload == workload
    ]
