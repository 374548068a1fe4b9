"""One request as keyword arguments: only what the pipeline's signature has, and the same noise on every device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from stowplan_agent.pipeline import PipelineRequest
from stowplan_agent.pipeline.hosted import as_frames
from stowplan_agent.pipeline.prompts import PROMPT
from stowplan_agent.pipeline.request import Stopped


def video(
    prompt: Any,
    negative_prompt: Any,
    height: int,
    width: int,
    num_frames: int,
    num_inference_steps: int,
    guidance_scale: float,
    generator: Any,
    output_type: str,
    callback_on_step_end: Any = None,
) -> None:
    """The signature of a video pipeline."""


def image(prompt: Any, height: int, width: int, num_inference_steps: int, generator: Any, output_type: str) -> None:
    """The signature of an image pipeline without guidance."""


REQUEST = PipelineRequest(width=64, height=32, frames=5, steps=4, guidance=3.5, seed=11)


def test_a_pipeline_gets_what_it_takes() -> None:
    arguments = REQUEST.arguments(video, stop=lambda: False)
    assert {name: arguments[name] for name in ("prompt", "width", "height", "num_frames", "num_inference_steps")} == {
        "prompt": PROMPT, "width": 64, "height": 32, "num_frames": 5, "num_inference_steps": 4,
    }  # fmt: skip
    assert arguments["guidance_scale"] == 3.5
    assert arguments["output_type"] == "np"
    assert "negative_prompt" not in arguments  # left open: the pipeline's own default
    assert "callback_on_step_end" in arguments


def test_and_nothing_else() -> None:
    assert set(REQUEST.arguments(image, stop=lambda: False)) == {
        "prompt", "width", "height", "num_inference_steps", "generator", "output_type",
    }  # fmt: skip


def test_a_seed_gives_the_same_noise_each_time_and_on_the_cpu() -> None:
    first, second = (REQUEST.arguments(video)["generator"] for _ in range(2))
    assert first.device == torch.device("cpu")
    assert torch.equal(torch.randn(8, generator=first), torch.randn(8, generator=second))


def test_stop_is_asked_after_each_step() -> None:
    answers = iter([False, True])
    after_step = REQUEST.arguments(video, stop=lambda: next(answers))["callback_on_step_end"]
    tensors = {"latents": 1}
    assert after_step(None, 0, None, tensors) is tensors
    with pytest.raises(Stopped):
        after_step(None, 1, None, tensors)


@pytest.mark.parametrize(("given", "shape"), [((1, 5, 4, 4, 3), (5, 4, 4, 3)), ((2, 4, 4, 3), (2, 4, 4, 3))])
def test_frames_of_one_request(given: tuple[int, ...], shape: tuple[int, ...]) -> None:
    frames = as_frames(np.zeros(given, dtype=np.float64))
    assert (frames.shape, frames.dtype) == (shape, np.float32)


def test_two_videos_for_one_request_are_refused() -> None:
    with pytest.raises(TypeError, match="made 2 videos for one request"):
        as_frames(np.zeros((2, 5, 4, 4, 3)))
