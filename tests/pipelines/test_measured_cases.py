"""CASES M on real pipelines: what runs after decode, the tail of a request, other areas, long prompts, and tiles."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pipelines.sessions import link_of, record_of, session_of, shape_of
from starts import settings_of, start
from stowplan_agent.calibration import Observation, Sample, extrapolate
from stowplan_agent.lifecycle import session as session_module
from stowplan_agent.lifecycle.session import Session
from stowplan_agent.lifecycle.shapes import work
from stowplan_agent.planning import cost, seed_placement, solve, with_device_memory
from stowplan_agent.serving.requests import Refused
from stowplan_api.record import CalibrationRecord

RESERVE = 1 << 20
"""Of the records here."""
TAIL = 48 << 20
"""Bytes that post-processing takes here: more than any component's interval."""


@contextmanager
def tail(session: Session, work: Callable[[], Any]) -> Any:
    """The pipeline does something more when its last component has returned."""
    pipe: Any = session.pipeline._pipeline
    kind = type(pipe)
    plain = pipe.video_processor.postprocess_video

    def longer(*args: Any, **kwargs: Any) -> Any:
        work()
        return plain(*args, **kwargs)

    pipe.video_processor.postprocess_video = longer
    try:
        yield
    finally:
        del pipe.video_processor.postprocess_video
        assert type(pipe) is kind


def found(observations: tuple[Observation, ...], component: str | None, entry: str) -> Observation:
    return next(one for one in observations if (one.component, one.entry) == (component, entry))


def tailed(folder: Path) -> tuple[CalibrationRecord, tuple[Observation, ...], tuple[Observation, ...]]:
    """The record of a request with a heavy tail; its observations, and those of one without."""
    shape = shape_of("tiny-wan", 1)
    with session_of(folder) as session:
        link = link_of(session)
        _, plain = session.watch(shape, link)
        with tail(session, lambda: torch.zeros(TAIL, dtype=torch.uint8)):
            _, heavy = session.watch(shape, link)
        return record_of(session, shape, heavy, link), heavy, plain


def test_m1_post_processing_is_an_interval_of_its_own_and_decode_keeps_its_peak(tiny_wan: Path) -> None:
    _, heavy, plain = tailed(tiny_wan)
    finish, decode = found(heavy, None, "finish"), found(heavy, "vae", "decode")
    assert finish.activation_bytes == pytest.approx(TAIL, rel=0.1)
    alone = found(plain, "vae", "decode").activation_bytes
    assert decode.activation_bytes == pytest.approx(alone, abs=64)  # the scheduler keeps a number of the first request
    assert decode.activation_bytes < finish.activation_bytes
    assert finish.activation_bytes == max(one.activation_bytes for one in heavy)
    assert finish.loose_seconds > found(plain, None, "finish").loose_seconds


def test_m2_a_plan_that_overruns_only_in_the_tail_is_infeasible(tiny_wan: Path) -> None:
    record, heavy, _ = tailed(tiny_wan)
    outside, reserve = record.ranks[0].outside_bytes, record.ranks[0].reserve_bytes or 0
    held = record.component("transformer").loose_bytes
    card = outside + reserve + found(heavy, None, "finish").activation_bytes + held // 2
    plan = solve(with_device_memory(record, card))
    assert plan.placement is not None  # what leaves before the tail fits
    kept = plan.placement.model_copy(
        update={
            "components": tuple(
                entry.model_copy(update={"loose_lifetime": "Permanent"}) if entry.name == "transformer" else entry
                for entry in plan.placement.components
            )
        }
    )
    broken = cost(with_device_memory(record, card), kept).violations
    assert broken and {one.interval for one in broken if one.interval is not None} == {len(record.intervals) - 1}


def test_m5_tiles_longer_than_the_clip_decode_it_whole_and_shorter_ones_take_their_own_course(tiny_wan: Path) -> None:
    shape = shape_of("tiny-wan", 1, side=64)
    with session_of(tiny_wan) as session:
        link, vae = link_of(session), session.pipeline.modules()["vae"]
        whole, plain = session.watch(shape, link)
        enable: Any = vae.enable_tiling
        enable(tile_sample_min_height=128, tile_sample_min_width=128)
        same, untiled = session.watch(shape, link)
        enable(
            tile_sample_min_height=32, tile_sample_min_width=32,
            tile_sample_stride_height=24, tile_sample_stride_width=24,
        )  # fmt: skip
        _, tiled = session.watch(shape, link)
    before, after, parts = (found(each, "vae", "decode") for each in (plain, untiled, tiled))
    assert (after.passes, after.calls) == (1, 1)
    assert after.activation_bytes == pytest.approx(before.activation_bytes, abs=64)
    assert same.digest == whole.digest
    assert parts.activation_bytes < after.activation_bytes
    assert parts.loose_seconds != pytest.approx(after.loose_seconds, rel=0.01)


def test_an_encoder_that_is_called_twice_is_one_interval_of_two_passes(tiny_wan: Path) -> None:
    with session_of(tiny_wan) as session:
        _, observations = session.watch(shape_of("tiny-wan", 1), link_of(session))
    encode = [one for one in observations if one.component == "text_encoder"]
    assert [(one.calls, one.passes) for one in encode] == [(2, 2)]


def test_m3_activations_are_those_of_the_declared_area_and_not_of_the_measured_one(tiny_wan: Path) -> None:
    """1088x1920 is 1.99 times 1024x1024; these are as far apart. What needed the whole card fits it no more."""
    small, measured, declared = (
        shape_of("tiny-wan", 1).model_copy(update={"width": width, "height": height})
        for width, height in ((64, 64), (96, 64), (128, 96))
    )
    with session_of(tiny_wan) as session:
        link = link_of(session)
        samples = {shape.width: Sample(work(shape), session.watch(shape, link)[1]) for shape in (small, measured)}
        extrapolated = extrapolate(samples[96], samples[64], work(declared))
        _, real = session.watch(declared, link)
        before, after = (record_of(session, declared, each, link) for each in (samples[96].observations, extrapolated))
    decoding = [
        found(each, "vae", "decode").activation_bytes for each in (samples[96].observations, extrapolated, real)
    ]
    assert decoding[1] == pytest.approx(decoding[2], rel=0.02)
    assert decoding[1] > 1.8 * decoding[0]
    card = max(ranks[0] for ranks in cost(before, seed_placement(before.components, ranks=1)).device_bytes) + RESERVE
    plan = solve(with_device_memory(before, card))
    assert plan.placement is not None
    assert not cost(with_device_memory(after, card), plan.placement).feasible


def test_m4_encoders_are_measured_at_the_longest_prompt_that_is_allowed(write_tiny: Callable[[str], Path]) -> None:
    """Qwen's encoder pads to the prompt at hand, and its denoiser attends to it."""
    started = start(settings_of(write_tiny("tiny-qwen"), "96Mi", shapes=["32x32@2"]))
    try:
        assert started.phase == "Ready", started.error
        prepared, session, service = started.startup.prepared, started.startup.prepared.session, started.service()
        assert prepared.record.workloads[0].prompt_tokens == 512
        (encode,) = (one for one in prepared.record.intervals if one.component == "text_encoder")
        allowed = encode.runs[0].activation_bytes[0]
        word, tokens = "fox ", session.pipeline.prompts.tokens

        def watched(prompt: str) -> int:
            service.admit(started.request(prompt=prompt))
            with monkeypatched_prompt(prompt):
                _, observations = session.watch(started.settings.spec.workload.shapes[0], prepared.record.ranks[0].link)
            return found(observations, "text_encoder", "forward").activation_bytes

        short, long = word * (10 // tokens(word)), word * (512 // tokens(word))
        assert watched(short) < watched(long) == pytest.approx(allowed, rel=0.01)
        with pytest.raises(Refused, match=r"the prompt is \d{6} tokens long, and this model was measured for 512"):
            service.admit(started.request(prompt=word * 100_000))
        after = started.request(prompt=short)
        service.admit(after)
        assert service.run(after, lambda: False).frames.shape == (1, 32, 32, 3)
    finally:
        started.startup.close()


@contextmanager
def monkeypatched_prompt(prompt: str) -> Iterator[None]:
    """Watched requests have this prompt."""
    with pytest.MonkeyPatch.context() as patch:
        plain = session_module.request_of
        patch.setattr(session_module, "request_of", lambda shape: replace(plain(shape), prompt=prompt))
        yield
