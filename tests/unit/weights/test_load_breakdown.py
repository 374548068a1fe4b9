"""The breakdown of a load, over an emulated card: it names every step that there is, and changes nothing."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))

import load_breakdown
from load_breakdown import Breakdown
from stowplan_agent.weights import WeightsEngine, relocation
from stowplan_api.placement import Placement
from unit.weights.stacks import Stack, emulated_card, resident


def test_a_load_is_as_long_as_its_parts() -> None:
    before = {name: [getattr(*place) for place in places] for name, places in load_breakdown.STEPS.items()}
    breakdown, stack, x = Breakdown(), Stack(), torch.rand(2, 16)
    with emulated_card() as card, torch.no_grad():
        expected, engine = stack(x), WeightsEngine(card)
        with breakdown.watching():
            assert relocation.load_all is not before["loadDevice"][0]
            begun = time.monotonic()
            engine.adopt({"part": stack}, lambda _: Placement(components=(resident(),)))
            card.synchronize()
            ended = time.monotonic()
        assert torch.equal(stack(x), expected)
        engine.close()
    found = breakdown.summary(begun, ended)
    parts = found["beforeFirstByte"] + found["reading"] + found["afterLastByte"]
    assert abs(parts - found["wall"]) < 0.01 and min(parts, found["reading"]) > 0
    units = 1 + 5 + 4
    assert found["caller"]["allocate"]["calls"] == found["caller"]["waitForBytes"]["calls"] == units
    assert found["callerBeforeFirstByte"]["survey"]["calls"] == 1
    assert found["readers"]["threads"] == 1 and 0 < found["readers"]["read"] <= 1
    assert {name: [getattr(*place) for place in places] for name, places in load_breakdown.STEPS.items()} == before
