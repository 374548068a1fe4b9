"""The weights engine on ranks as processes: the same output in every placement, from one host copy of one file."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from crew import run_ranks
from engine_programs import LAYERS, SIDE
from safetensors.torch import save_file

LAYER = SIDE * SIDE * 4


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_serve_every_placement_from_one_copy_and_from_shards(ranks: int, tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(5)
    layers = {f"blocks.{number}.weight": torch.randn(SIDE, SIDE, generator=generator) / 8 for number in range(LAYERS)}
    save_file(layers, tmp_path / "stack.safetensors")
    outcome = run_ranks("placements_of_ranks", ranks, str(tmp_path))
    assert outcome.code == 0, "\n".join(outcome.errors)
    planned = {  # layers on each device, layers in shards, pinned layers of all ranks, pageable ones
        "offload": (0, 0, 0, LAYERS),
        "streamed": (0, 0, LAYERS, 0),
        "half": (LAYERS // 2, 0, LAYERS - LAYERS // 2, 0),
        "three places": (2, 2, LAYERS - 4, 0),
        "sharded": (0, LAYERS, 0, 0),
        "resident": (LAYERS, 0, 0, 0),
    }
    found = [outcome.result(rank) for rank in range(ranks)]
    for of_all in zip(*found, strict=True):
        name = of_all[0][0]
        assert [right for _, right, _ in of_all] == [True] * ranks, name
        if name not in planned:
            continue
        whole, shards, pinned, pageable = planned[name]
        for _, _, held in of_all:  # every share is as large as any other
            assert held == {
                "device": whole * LAYER + shards * LAYER // ranks,
                "pinned": pinned * LAYER // ranks,
                "pageable": pageable * LAYER // ranks,
            }, name
