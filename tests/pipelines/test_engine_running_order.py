"""Models that do not run their layers as they list them: a UNet, and a language model with a vision tower.

A UNet lists down, up, mid and runs down, mid, up; no text request calls the vision tower of Qwen2.5-VL.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.tiny_requests import ask, calls_of, layerwise, load, managed, place_all, stretches_of
from stowplan_agent.weights import Timeline


@pytest.mark.parametrize("name", ["tiny-sdxl", "tiny-qwen"])
def test_an_expected_request_copies_each_layer_that_runs_once_a_pass(
    name: str, write_tiny: Callable[[str], Path]
) -> None:
    tiny = load(write_tiny(name))
    calls = calls_of(tiny.pipe)
    with managed(tiny.pipe) as (engine, _):
        place_all(engine, layerwise(0.0))
        engine.timeline = Timeline(stretches_of(calls))
        ask(tiny.pipe, engine)  # from which the order is learned
        before = engine.ledger.streamed_bytes
        ask(tiny.pipe, engine)
        expected = sum(
            calls.count(part.name)
            * (sum(sum(group.layer_bytes) for group in part.groups if "visual" not in group.name) or part.total_bytes())
            for part in engine.describe()
        )
        assert engine.ledger.streamed_bytes - before == expected
