"""A fault at the first and the last operation of each kind while a pipeline is loaded: nothing half done.

Components that were loaded before the fault are managed and right; the others are as the library left them, without
a hook, with every value; memory is what the managed ones hold; and loading again does the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from faults.drills import hooked
from pipelines.tiny_requests import PLACEMENTS
from stowplan_agent.accelerators.announced import announce
from stowplan_agent.accelerators.emulated import EmulatedAccelerator, EmulatedCard
from stowplan_agent.pipeline import HostedPipeline, PipelineRequest
from stowplan_agent.transaction import Point, Points
from stowplan_agent.weights import WeightsEngine
from stowplan_api.placement import Placement
from stowplan_api.record import Component

REQUEST = PipelineRequest(width=32, height=32, frames=1, steps=1)


@contextmanager
def opened(folder: Path) -> Iterator[tuple[HostedPipeline, WeightsEngine]]:
    card = EmulatedAccelerator(EmulatedCard(1 << 30))
    announce(card)
    engine = WeightsEngine(card)
    try:
        yield HostedPipeline.load(folder, "bfloat16", card.device), engine
    finally:
        engine.close()
        card.close()


def load(hosted: HostedPipeline, engine: WeightsEngine, *faults: Point) -> Points:
    points = Points(faults)
    with points.within("load"):
        engine.adopt(hosted.modules(), half, converted_from=hosted.deferred.source_of)
    return points


def half(parts: Sequence[Component]) -> Placement:
    return Placement(components=tuple(PLACEMENTS["half, leading"](part) for part in parts))


def output(hosted: HostedPipeline, engine: WeightsEngine) -> bytes:
    with engine.request():
        return hosted.run(REQUEST).tobytes()


def test_a_load_that_fails_leaves_each_component_loaded_or_untouched(tiny_wan: Path) -> None:
    with opened(tiny_wan) as (hosted, engine):
        counts = {kind: count for (_, kind), count in load(hosted, engine).seen.items()}
        expected, whole = output(hosted, engine), engine.snapshot()
    assert counts.keys() >= {"arena", "read", "hook", "allocate", "fill"}
    for kind, count in counts.items():
        for number in sorted({1, count}) if kind != "free" else ():
            with opened(tiny_wan) as (hosted, engine):
                with pytest.raises((OSError, RuntimeError, torch.OutOfMemoryError), match=rf"fault load:{kind}\."):
                    load(hosted, engine, Point("load", kind, number))
                managed = {part.name for part in engine.describe()}
                assert managed < hosted.modules().keys()
                for name, module in hosted.modules().items():
                    assert bool(list(hooked(module))) is (name in managed), (kind, number, name)
                engine.check()
                load(hosted, engine)
                assert engine.snapshot() == whole
                assert output(hosted, engine) == expected, (kind, number)
