"""Watching one request: intervals, waits and activations, on a real emulated card driven by hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
import torch

from stowplan_agent.accelerators.emulated import EmulatedAccelerator, EmulatedCard
from stowplan_agent.accelerators.interface import MemoryCounters
from stowplan_agent.calibration import CalibrationError, Observation, Watch, observe, with_fragmentation
from stowplan_agent.calibration.observation import timeline_of
from stowplan_api.record import Link

CARD = EmulatedCard(
    capacity_bytes=1 << 30, outside_bytes=0, pinned_rate=1e6, pageable_rate=1e6, latency=0.0, contention=1.0
)
LINK = Link(pinned_bytes_per_second=1e6, pageable_bytes_per_second=1e6, latency_seconds=0.0, contention=1.5)


@dataclass
class Pipeline:
    """What a pipeline and the engine's hooks would do, one call at a time."""

    card: EmulatedAccelerator
    watch: Watch
    streamed: int = 0

    def compute(self, seconds: float, activations: int = 0) -> None:
        if activations:
            held = torch.empty(activations, dtype=torch.uint8)
            del held
        self.card.clock.advance(seconds)

    def wait(self, seconds: float) -> None:
        self.card.clock.wait(self.card.clock.compute + seconds)

    def call(
        self, component: str, *, layers: int = 0, loose: float = 0.0, layer: float = 0.0, wait: float = 0.0
    ) -> None:
        self.watch.component_awaited(component, "forward")
        self.wait(wait)
        self.watch.component_entered(component, "forward")
        self.compute(loose)
        for index in range(layers):
            self.watch.layer_awaited(component, "blocks", index)
            self.wait(wait)
            self.watch.layer_entered(component, "blocks", index)
            self.compute(layer)
            self.watch.layer_left(component, "blocks", index)
        self.watch.component_left(component, "forward")


@pytest.fixture
def pipeline() -> Iterator[Pipeline]:
    card = EmulatedAccelerator(CARD)
    made = Pipeline(card, Watch(card, lambda: made.streamed))
    with card.running():
        yield made
    card.close()


def observed(pipeline: Pipeline) -> dict[tuple[str | None, str], Observation]:
    found = observe(pipeline.watch.intervals, pipeline.card, LINK)
    return {(one.component, one.entry): one for one in found}


def test_consecutive_calls_are_one_interval_and_what_lies_between_components_another(pipeline: Pipeline) -> None:
    watch = pipeline.watch
    watch.begin()
    pipeline.compute(0.5)
    pipeline.call("text", loose=1.0)
    pipeline.compute(0.25)
    for _ in range(3):
        pipeline.call("denoiser", layers=2, loose=0.1, layer=0.4)
        pipeline.compute(0.05)
    pipeline.call("vae", loose=2.0)
    pipeline.compute(0.125)
    watch.finish()
    found = observe(watch.intervals, pipeline.card, LINK)
    assert timeline_of(found) == [
        (None, "prepare"),
        ("text", "forward"),
        (None, "between"),
        ("denoiser", "forward"),
        (None, "between"),
        ("vae", "forward"),
        (None, "finish"),
    ]
    assert [one.passes for one in found] == [1, 1, 1, 3, 1, 1, 1]
    # What runs between two calls of one component is part of its interval: two of the three gaps lie inside.
    seconds = [(one.loose_seconds + sum(sum(row) for row in one.layer_seconds.values())) * one.passes for one in found]
    assert seconds == pytest.approx([0.5, 1.0, 0.25, 3 * 0.9 + 2 * 0.05, 0.05, 2.0, 0.125])
    assert found[3].layer_seconds["blocks"] == pytest.approx((0.4, 0.4))


def test_waiting_for_weights_is_no_work(pipeline: Pipeline) -> None:
    pipeline.watch.begin()
    for _ in range(2):
        pipeline.call("denoiser", layers=3, loose=0.1, layer=0.2, wait=5.0)
    pipeline.watch.finish()
    denoiser = observed(pipeline)["denoiser", "forward"]
    assert denoiser.layer_seconds["blocks"] == pytest.approx((0.2, 0.2, 0.2))
    assert denoiser.loose_seconds == pytest.approx(0.1)
    assert (denoiser.calls, denoiser.passes) == (2, 2)


def test_activations_are_the_peak_of_each_interval_alone(pipeline: Pipeline) -> None:
    watch = pipeline.watch
    watch.begin()
    watch.component_awaited("text", "forward")
    watch.component_entered("text", "forward")
    pipeline.compute(0.1, activations=5000)
    watch.component_left("text", "forward")
    pipeline.compute(0.1, activations=300)
    watch.component_awaited("vae", "decode")
    watch.component_entered("vae", "decode")
    pipeline.compute(0.1, activations=70)
    watch.component_left("vae", "decode")
    pipeline.compute(0.1, activations=9000)  # CASES M1: post-processing has the request's peak
    watch.finish()
    found = {one.component or one.entry: one.activation_bytes for one in observe(watch.intervals, pipeline.card, LINK)}
    assert found == {"prepare": 0, "text": 5000, "between": 300, "vae": 70, "finish": 9000}
    assert watch.peak == watch.reserved_peak == 9000


class HoardingAccelerator(EmulatedAccelerator):
    """Its allocator keeps what it once took, and half as much again for each tensor, until its cache is emptied."""

    kept = 0

    def counters(self) -> MemoryCounters:
        counters = super().counters()
        self.kept = max(self.kept, counters.peak + counters.activation_peak // 2)
        return replace(counters, reserved_peak=self.kept)

    def empty_cache(self) -> None:
        super().empty_cache()
        self.kept = super().counters().allocated


@pytest.mark.parametrize("fresh", [False, True])
def test_a_fresh_watch_tells_what_the_allocator_takes_in_each_interval_alone(fresh: bool) -> None:
    card = HoardingAccelerator(CARD)
    pipeline = Pipeline(card, Watch(card, lambda: 0, fresh=fresh))
    with card.running():
        pipeline.watch.begin()
        for component, activations in (("text", 8000), ("vae", 2000), ("vae", 1000)):
            pipeline.watch.component_awaited(component, "forward")
            pipeline.watch.component_entered(component, "forward")
            pipeline.compute(0.1, activations)
            pipeline.watch.component_left(component, "forward")
        pipeline.watch.finish()
        found = observed(pipeline)
    card.close()
    taken = {one.component or one.entry: one.fragmentation_bytes for one in found.values()}
    assert taken == {"prepare": 0, "text": 4000 * fresh, "between": 0, "vae": 1000 * fresh, "finish": 0}
    heavier = [replace(one, activation_bytes=3 * one.activation_bytes) for one in found.values()]
    scaled = {one.component: one.fragmentation_bytes for one in with_fragmentation(heavier, list(found.values()))}
    assert scaled == {None: 0, "text": 12000 * fresh, "vae": 3000 * fresh}
    assert with_fragmentation(heavier[1:2], ())[0].fragmentation_bytes == 0


def test_weights_are_not_activations_whatever_is_placed(pipeline: Pipeline) -> None:
    watch = pipeline.watch
    watch.begin()
    watch.component_awaited("vae", "decode")
    weights = pipeline.card.allocate(1 << 20)
    watch.component_entered("vae", "decode")
    pipeline.compute(0.1, activations=70)
    watch.component_left("vae", "decode")
    pipeline.card.free(weights)
    watch.finish()
    assert observed(pipeline)["vae", "decode"].activation_bytes == 70


def test_a_call_that_makes_several_passes_over_its_layers(pipeline: Pipeline) -> None:
    watch = pipeline.watch
    watch.begin()
    watch.component_awaited("text", "generate")
    watch.component_entered("text", "generate")
    for _ in range(4):
        for layer in range(2):
            watch.layer_awaited("text", "blocks", layer)
            watch.layer_entered("text", "blocks", layer)
            pipeline.compute(0.25)
            watch.layer_left("text", "blocks", layer)
    watch.component_left("text", "generate")
    watch.finish()
    text = observed(pipeline)["text", "generate"]
    assert (text.calls, text.passes) == (1, 4)
    assert text.layer_seconds["blocks"] == pytest.approx((0.25, 0.25))


def test_the_slowdown_by_copies_is_taken_out(pipeline: Pipeline) -> None:
    """All of an interval beside copies, and contention 1.5: what took 3 s takes 2 s alone."""
    watch = pipeline.watch
    watch.begin()
    watch.component_awaited("denoiser", "forward")
    watch.component_entered("denoiser", "forward")
    pipeline.compute(3.0)
    pipeline.streamed += 3_000_000
    watch.component_left("denoiser", "forward")
    watch.finish()
    assert observed(pipeline)["denoiser", "forward"].loose_seconds == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("reached", "sentence"),
    [
        (0, "the interval before the first component"),
        (1, "interval text.forward"),
        (2, "the interval after text"),
        (3, "interval vae.decode"),
    ],
)
def test_what_runs_now_has_a_name(pipeline: Pipeline, reached: int, sentence: str) -> None:
    watch = pipeline.watch
    watch.begin()
    steps = (
        lambda: (watch.component_awaited("text", "forward"), watch.component_entered("text", "forward")),
        lambda: watch.component_left("text", "forward"),
        lambda: watch.component_awaited("vae", "decode"),
    )
    for step in steps[:reached]:
        step()
    assert watch.running() == sentence


def test_a_call_that_raised_is_what_ran(pipeline: Pipeline) -> None:
    """Hooks hear of the end of a call that raised, and memory ran out inside it, not after it."""
    watch = pipeline.watch
    watch.begin()
    pipeline.call("text")
    watch.component_awaited("vae", "decode")
    watch.component_entered("vae", "decode")
    try:
        raise torch.OutOfMemoryError("no")
    except torch.OutOfMemoryError:
        watch.component_left("vae", "decode")
    assert watch.running() == "interval vae.decode"


def test_a_component_inside_another_is_refused_by_name(pipeline: Pipeline) -> None:
    watch = pipeline.watch
    watch.begin()
    watch.component_awaited("prior", "generate")
    watch.component_entered("prior", "generate")
    with pytest.raises(CalibrationError, match="component text is called inside component prior"):
        watch.component_awaited("text", "forward")
    watch.component_left("prior", "generate")
    watch.finish()
    assert list(observed(pipeline)) == [(None, "prepare"), ("prior", "generate"), (None, "finish")]


def test_copies_from_locked_memory_slow_compute_for_as_long_as_they_run(pipeline: Pipeline) -> None:
    """Locked copies are over sooner: a third of the interval had one beside it, not all of it."""
    fast = LINK.model_copy(update={"pinned_bytes_per_second": 3e6})
    pipeline.watch.begin()
    pipeline.watch.component_awaited("denoiser", "forward")
    pipeline.watch.component_entered("denoiser", "forward")
    pipeline.compute(3.0)
    pipeline.streamed += 3_000_000
    pipeline.watch.component_left("denoiser", "forward")
    pipeline.watch.finish()
    found = observe(pipeline.watch.intervals, pipeline.card, fast, lambda _component: 1.0)
    denoiser = next(one for one in found if one.component == "denoiser")
    assert denoiser.loose_seconds == pytest.approx(3.0 / (1 + 0.5 / 3))
