"""W14: layers that are compiled one by one are streamed without being compiled again, in any placement.

Calls are made outside a request's own context here: the emulated card watches operations through a dispatch mode, and
torch compiles nothing within one. Graphs are only captured and counted; they run as they are, so bits can be compared.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo

from pipelines.tiny_requests import PLACEMENTS, Tiny, load, managed, modules, place_all, run, stack


@pytest.mark.parametrize("name", ["tiny-wan", "tiny-qwen"])
def test_w14_layers_compiled_one_by_one_are_compiled_once(name: str, write_tiny: Callable[[str], Path]) -> None:
    torch._dynamo.reset()
    compiled: list[int] = []

    def backend(graph: Any, inputs: Any) -> Any:
        compiled.append(len(inputs))
        return graph.forward

    tiny: Tiny = load(write_tiny(name))
    for layer in stack(tiny.pipe):
        layer.forward = torch.compile(layer.forward, backend=backend)
    expected = run(tiny.pipe, steps=5)
    torch._dynamo.reset()
    compiled.clear()
    with managed(tiny.pipe) as (engine, _):
        place_all(engine, PLACEMENTS["streamed"])
        run(tiny.pipe, steps=1)
        once = len(compiled)
        assert once > 0
        for place in ("streamed", "half, leading", "resident"):
            place_all(engine, PLACEMENTS[place])
            assert torch.equal(run(tiny.pipe, steps=5), expected), place
            assert len(compiled) == once, place
            with engine.request():
                pass  # what the calls left visiting goes
    assert not any(parameter.is_meta for part in modules(tiny.pipe).values() for parameter in part.parameters())
    torch._dynamo.reset()
