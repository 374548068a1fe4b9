"""Serving on a validated placement: admission, one failure that stays one, and memory that comes back."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from starts import Start, settings_of, start
from stowplan_agent.lifecycle.service import Service
from stowplan_agent.serving.requests import Cancelled, Refused


@pytest.fixture(scope="module")
def started(tiny_wan: Path) -> Iterator[Start]:
    ready = start(settings_of(tiny_wan, "40Mi", shapes=["32x32x5@2", "wide=64x32x1@2"]))
    assert ready.phase == "Ready"
    yield ready
    ready.startup.close()


@pytest.fixture
def service(started: Start) -> Service:
    return started.service()


@pytest.mark.parametrize(
    "fields", [{}, {"frames": 1}, {"width": 64, "frames": 1}, {"steps": 40}, {"width": 16, "height": 16, "frames": 17}]
)
def test_what_was_measured_or_is_less_is_admitted(started: Start, service: Service, fields: dict[str, Any]) -> None:
    service.admit(started.request(**fields))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"width": 64}, ("64x32x5 is 10240 pixels", "32x32x5, has 5120", "spec.workload.shapes")),
        ({"frames": 9}, ("32x32x9", "9216 pixels")),
        ({"frames": 6}, ("frames 6", "use 5 or 9")),
        ({"width": 40}, ("width 40", "multiples of 16")),
        ({"height": 100_000}, ("height 100000", "16384")),
    ],
)
def test_what_was_never_measured_is_refused_with_numbers(
    started: Start, service: Service, fields: dict[str, Any], words: tuple[str, ...]
) -> None:
    with pytest.raises(Refused) as caught:
        service.admit(started.request(**fields))
    for word in words:
        assert word in str(caught.value)


def test_a_seed_gives_the_same_video_and_another_another(started: Start, service: Service) -> None:
    first, second, other = (
        service.run(started.request(seed=seed), lambda: False).frames.tobytes() for seed in (1, 1, 2)
    )
    assert first == second
    assert first != other


def test_several_images_of_one_prompt_have_seeds_of_their_own(started: Start, service: Service) -> None:
    result = service.run(started.request(frames=1, count=2, seed=5), lambda: False)
    assert result.frames.shape == (2, 32, 32, 3)
    (alone,) = service.run(started.request(frames=1, seed=6), lambda: False).frames
    assert (result.frames[1] == alone).all()


def test_a_cancelled_request_ends_after_its_step_and_gives_its_memory_back(started: Start, service: Service) -> None:
    accelerator = started.startup.prepared.session.accelerator
    service.run(started.request(), lambda: False)
    gc.collect()
    before, asked = accelerator.counters().allocated, []

    def cancelled() -> bool:
        asked.append(1)
        return len(asked) == 2

    with pytest.raises(Cancelled):
        service.run(started.request(steps=20), cancelled)
    assert len(asked) == 2
    gc.collect()
    # The scheduler keeps its own table of 20 timesteps instead of 2: bytes, no activations.
    assert accelerator.counters().allocated - before < 8192


def test_memory_is_flat_over_many_requests(started: Start, service: Service) -> None:
    accelerator = started.startup.prepared.session.accelerator
    held = set()
    for _ in range(4):
        service.run(started.request(frames=1), lambda: False)
        gc.collect()
        held.add(accelerator.counters().allocated)
    assert max(held) - min(held) < 8192
    assert accelerator.counters().weights == started.weights_on_device()


def test_the_error_of_a_request_holds_none_of_its_memory(started: Start, service: Service) -> None:
    accelerator = started.startup.prepared.session.accelerator
    gc.collect()
    before = accelerator.counters().allocated
    room = accelerator.capacity_bytes() - accelerator.outside_bytes() - before
    ballast = accelerator.allocate(room - (1 << 20))
    with pytest.raises(torch.OutOfMemoryError) as caught:
        service.run(started.request(), lambda: False)
    accelerator.free(ballast)
    gc.collect()
    assert accelerator.counters().allocated - before < 8192
    assert "Tried to allocate" in str(caught.value)
