"""RUNTIME 1 through the whole start, on a UNet and on a causal language model: planned, applied, proven, bit-equal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from starts import settings_of, start, start_again

CARDS = {"tiny-sdxl": ("10Mi", "64Mi"), "tiny-qwen": ("11Mi", "64Mi")}
"""On the first a part is kept, on the second everything that a request calls."""


@pytest.mark.parametrize("name", CARDS)
def test_runtime_1_planned_applied_and_rolled_back_outputs_are_those_of_the_resident_pipeline(
    name: str, write_tiny: Callable[[str], Path]
) -> None:
    small, large = (start(settings_of(write_tiny(name), card, shapes=["32x32@2"])) for card in CARDS[name])
    try:
        for started in (small, large):
            assert (started.phase, started.error) == ("Ready", "None")
            assert started.status.validation is not None and started.status.validation.bit_equal
        assert small.weights_on_device() < large.weights_on_device()
        expected = large.output()
        assert small.output() == expected
        back = start_again(small, faults="validate.seconds")
        assert back.phase == "RolledBack"
        assert back.output() == expected
    finally:
        for started in (small, large):
            started.startup.close()
