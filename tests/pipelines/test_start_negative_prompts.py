"""Drift with negative prompts: a pipeline that then runs twice the passes is compared with twice the passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from starts import settings_of, start


@dataclass
class Ratios:
    """Hears what `DriftWatch` would: measured over promised."""

    seconds: list[float | None] = field(default_factory=list)
    peaks: list[float] = field(default_factory=list)

    def observe(self, *, seconds_ratio: float | None, peak_ratio: float) -> None:
        self.seconds.append(seconds_ratio)
        self.peaks.append(peak_ratio)


def test_a_negative_prompt_is_no_drift(write_tiny: Callable[[str], Path]) -> None:
    """Qwen-Image guides only with one: it was measured without, and a request with one encodes and denoises twice."""
    started = start(settings_of(write_tiny("tiny-qwen"), "96Mi", shapes=["32x32@2"]))
    try:
        assert started.phase == "Ready", started.error
        tokens, ratios = started.startup.prepared.session.pipeline.prompts.tokens, Ratios()
        longest = "fox " * (512 // tokens("fox "))  # what was measured
        service = started.service(drift=ratios)  # type: ignore[arg-type]
        taken = [
            service.run(started.request(prompt=longest, negative_prompt=negative), lambda: False).seconds
            for negative in (None, longest)
        ]
        assert taken[1] > 1.5 * taken[0]
        assert ratios.seconds == [pytest.approx(1, abs=0.05), pytest.approx(1, abs=0.05)]
        assert ratios.peaks == [pytest.approx(1, abs=0.02), pytest.approx(1, abs=0.02)]
    finally:
        started.startup.close()
