"""Requests of an unusual shape: two denoisers in turn within each step, and a decoder that goes tile by tile.

Both are watched for two steps, and what follows for the declared ones, calls, passes, seconds and peak, is that of a
full run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest
import torch

from pipelines import ltx_models, unet_and_causal_models
from pipelines.sessions import link_of, put, record_of, session_on, shape_of
from pipelines.tiny_requests import layerwise, offload
from stowplan_agent.accelerators.emulated import EmulatedAccelerator, EmulatedCard
from stowplan_agent.calibration import Answers, Observation, at_target
from stowplan_agent.lifecycle.session import Session, timeline_of
from stowplan_agent.pipeline import HostedPipeline
from stowplan_agent.pipeline.deferred import Deferred
from stowplan_agent.planning import cost
from stowplan_api.diffusion_deployment import Shape
from stowplan_api.placement import Placement

STEPS = 5
PLACEMENTS = {"streamed": layerwise(0.0), "half, three slots": layerwise(0.5, slots=3), "visiting": offload(1.0)}


@contextmanager
def hosting(pipe: Any) -> Iterator[Session]:
    accelerator = EmulatedAccelerator(EmulatedCard(capacity_bytes=1 << 30))
    with session_on(HostedPipeline(pipe, accelerator.device, Deferred()), accelerator) as session:
        yield session


def followed(session: Session, shape: Shape) -> tuple[Observation, ...]:
    """What follows for the shape from two of its steps."""
    answers = Answers()
    _, observed = session.watch(shape.model_copy(update={"steps": 2}), link_of(session), answers)
    rehearsal = session.rehearse(shape, answers)
    found = at_target(observed, rehearsal.calls, rehearsal.twins)
    assert found is not None
    return found


def counts(observations: tuple[Observation, ...]) -> list[tuple[str | None, str, int, int]]:
    return [(one.component, one.entry, one.calls, one.passes) for one in observations]


def check_predictions(session: Session, shape: Shape) -> tuple[Observation, ...]:
    """Counts are those of a full run; seconds and peaks of other placements within 5 %."""
    observations = followed(session, shape)
    _, full = session.watch(shape, link_of(session))
    assert counts(observations) == counts(full)
    record = record_of(session, shape, observations, link_of(session))
    for label, place in PLACEMENTS.items():
        placement = Placement(components=tuple(place(part) for part in record.components))
        predicted = cost(record, placement)
        put(session, placement)
        measured = session.measure(shape, timeline_of(record, shape))
        peak = max(ranks[0] for ranks in predicted.device_bytes)
        assert measured.seconds == pytest.approx(predicted.seconds, rel=0.05), label
        assert measured.peak_bytes == pytest.approx(peak, rel=0.05), label
    return observations


def controlled(tools: ModuleType) -> Any:
    """SDXL with a ControlNet, which sees each step before the UNet does. It begins with an image, and says so."""
    from diffusers import ControlNetModel, StableDiffusionXLControlNetPipeline

    class Controlled(StableDiffusionXLControlNetPipeline):  # type: ignore[misc]
        @torch.no_grad()
        def __call__(
            self, prompt: Any, image: Any, width: int, height: int, num_inference_steps: int, generator: Any,
            output_type: str, callback_on_step_end: Any = None,
        ) -> Any:  # fmt: skip
            return super().__call__(
                prompt, image=image, width=width, height=height, num_inference_steps=num_inference_steps,
                generator=generator, output_type=output_type, callback_on_step_end=callback_on_step_end,
            )  # fmt: skip

    parts = dict(unet_and_causal_models.tiny_sdxl(tools).components)
    net = tools.seeded(
        35, lambda: ControlNetModel.from_unet(parts["unet"], conditioning_embedding_out_channels=(16, 32))
    )
    names = ("vae", "text_encoder", "text_encoder_2", "tokenizer", "tokenizer_2", "unet", "scheduler")
    return Controlled(controlnet=net, add_watermarker=False, **{name: parts[name] for name in names})


def test_two_denoisers_in_turn_within_each_step(tiny_models: ModuleType) -> None:
    shape = shape_of("tiny-sdxl", STEPS)
    with hosting(controlled(tiny_models)) as session:
        observations = check_predictions(session, shape)
    order = [one.component for one in observations if one.component in ("controlnet", "unet")]
    assert order == ["controlnet", "unet"] * STEPS


def tiled(tools: ModuleType, side: int) -> Any:
    """LTX whose decoder has a stack of layers, cut into tiles of so many pixels that do not overlap."""
    from diffusers import AutoencoderKLLTXVideo

    pipe = ltx_models.tiny_ltx(tools)
    decoding = tools.seeded(
        54,
        lambda: AutoencoderKLLTXVideo(
            latent_channels=16, block_out_channels=(8, 16, 16, 16), decoder_block_out_channels=(8, 16, 16, 16),
            layers_per_block=(1, 1, 1, 1, 1), decoder_layers_per_block=(4, 1, 1, 1, 1),
        ),
    )  # fmt: skip
    decoding.enable_tiling(
        tile_sample_min_height=side, tile_sample_min_width=side,
        tile_sample_stride_height=side, tile_sample_stride_width=side,
    )  # fmt: skip
    pipe.register_modules(vae=decoding)
    return pipe


@pytest.mark.parametrize(("side", "tiles"), [(128, 1), (32, 4)])
def test_m5_a_tile_longer_than_the_clip_is_one_pass_and_a_longer_clip_has_its_own_count(
    side: int, tiles: int, tiny_models: ModuleType
) -> None:
    shape = shape_of("tiny-ltx", STEPS, side=64)
    with hosting(tiled(tiny_models, side)) as session:
        observations = check_predictions(session, shape)
    (decode,) = (one for one in observations if one.entry == "decode")
    assert (decode.calls, decode.passes) == (1, tiles)
    assert {len(row) for row in decode.layer_seconds.values()} == {4}
