"""The fuzz and two cases of the shared list on a real GPU, where compute is really queued and copies really late.

Needs torch with CUDA and nothing else. Run by hand: ``pytest -m gpu tests/gpu``.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from engine_fuzz import fuzz
from stowplan_agent.accelerators.cuda import CudaAccelerator
from stowplan_agent.weights import WeightsEngine
from unit.weights.stacks import Stack, layerwise

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU is visible to torch"),
]


class SlowLink(CudaAccelerator):
    """A link that at times makes a copy several times over, and so takes several times as long."""

    def __init__(self, most: int) -> None:
        """``most``: the most times that one copy is made."""
        super().__init__()
        self._repeats = random.Random(7)
        self._most = most

    def copy(self, *args: Any, **kwargs: Any) -> Any:
        for _ in range(self._repeats.randint(1, self._most)):
            event = super().copy(*args, **kwargs)
        return event


def lag(generator: random.Random) -> None:
    """Leave the device up to a few milliseconds behind the host, a third of the time."""
    if generator.random() < 0.3:
        torch.cuda._sleep(int(generator.random() * 4e6))


SPEEDS = {"slow copies": (30, False), "slow compute": (1, True), "both": (10, True), "neither": (1, False)}


@pytest.mark.parametrize("speeds", SPEEDS)
def test_two_hundred_random_passes_are_bit_equal_and_memory_is_flat(speeds: str) -> None:
    """RUNTIME 10 and W2: what is released or refilled waits for the compute that was queued before it."""
    repeats, lagging = SPEEDS[speeds]
    card = SlowLink(repeats)
    slow = lag if lagging else lambda generator: None
    tally = fuzz(card, seed=list(SPEEDS).index(speeds), width=1024, slow_compute=slow)
    card.close()
    assert tally.passes >= 200 and tally.placements >= 60 and tally.interrupted >= 5 and tally.commits >= 5


def test_w8_inputs_reach_the_compute_device_wherever_the_weights_lie() -> None:
    """Ids and latents made on the host, and a model whose first parameter is on the host while it is not running."""
    card = CudaAccelerator()
    stack, twin = Stack(width=256), Stack(width=256).to(card.device)
    x = torch.rand(3, 256)
    with torch.no_grad():
        expected = twin(x.to(card.device))
        engine = WeightsEngine(card)
        engine.adopt({"part": stack})
        for entry in (layerwise({"first": 0, "second": 0}, loose="Forward"), layerwise({"first": 2, "second": 0})):
            engine.place(entry)
            assert next(stack.first[4].parameters()).device.type == "cpu"
            with engine.request():
                output = stack(x)
            assert output.device == card.device and torch.equal(output, expected)
        engine.close()
