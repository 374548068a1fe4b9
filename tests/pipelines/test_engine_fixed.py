"""RUNTIME 5 on real pipelines: components that must not be moved stay on the device, whatever becomes of the others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo
from diffusers import DiffusionPipeline

from pipelines.tiny_requests import PLACEMENTS, load, managed, modules, run, stack
from pipelines.watched_card import WatchedCard
from stowplan_agent.weights import EntryError, WeightsEngine
from stowplan_agent.weights.ledger import Tier

SOME = ("resident", "offload", "streamed, three slots, nothing held")


def place_what_moves(engine: WeightsEngine, name: str) -> None:
    for part in engine.describe():
        if part.fixed is None:
            engine.place(PLACEMENTS[name](part))
        elif name != "resident":
            with pytest.raises(EntryError, match=f"component {part.name} can only be Resident"):
                engine.place(PLACEMENTS["offload"](part))


def wrapped(pipe: Any) -> None:
    pipe.transformer = torch.compile(pipe.transformer, backend="eager")


def in_place(pipe: Any) -> None:
    pipe.transformer.compile(backend="eager")


def block_by_block(pipe: Any) -> None:
    for layer in stack(pipe):
        layer.compile(backend="eager")


@pytest.mark.parametrize("how", [wrapped, in_place, block_by_block])
def test_w14_a_pipeline_compiled_whole_beforehand_is_found_out_and_fixed(
    how: Callable[[Any], None], write_tiny: Callable[[str], Path]
) -> None:
    torch._dynamo.reset()
    tiny = load(write_tiny("tiny-qwen"))
    how(tiny.pipe)
    with managed(tiny.pipe) as (engine, _):
        fixed = {part.name: part.fixed.reason for part in engine.describe() if part.fixed}
        assert fixed.keys() == {"transformer"} and "compile layers one by one" in fixed["transformer"]
        for name in SOME:
            place_what_moves(engine, name)
            assert torch.equal(run(tiny.pipe), tiny.reference), name
            with engine.request():
                pass  # what the calls left visiting goes
    torch._dynamo.reset()


def test_a_vae_that_its_pipeline_converts_in_every_request_is_fixed(write_tiny: Callable[[str], Path]) -> None:
    """SDXL in float16: `vae.to(float32)` before decode, and back after it (force_upcast, the default of its VAE)."""
    pipe = DiffusionPipeline.from_pretrained(write_tiny("tiny-sdxl"), dtype=torch.float16, local_files_only=True)
    pipe.set_progress_bar_config(disable=True)
    for module in modules(pipe).values():
        for tensor in [*module.parameters(), *module.buffers()]:
            tensor.data = tensor.data.clone()
    reference = run(pipe)
    with managed(pipe, WatchedCard()) as (engine, card):
        held = engine.ledger.held("vae", Tier.DEVICE)
        assert held == sum(tensor.nbytes for tensor in [*pipe.vae.parameters(), *pipe.vae.buffers()])
        for name in SOME:
            place_what_moves(engine, name)
            for _ in range(2):
                with engine.request():
                    assert torch.equal(run(pipe), reference), name
            assert engine.ledger.held("vae", Tier.DEVICE) == held
            assert card.counters().weights == engine.ledger.total(Tier.DEVICE)
            assert card.counters().activation_peak >= 2 * held  # the float32 VAE is the request's own memory
