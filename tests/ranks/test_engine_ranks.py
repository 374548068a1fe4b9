"""The weights engine on two ranks as processes: the same output in every placement, from one host copy of one file."""

from __future__ import annotations

from pathlib import Path

import torch
from crew import run_ranks
from engine_programs import LAYERS, SIDE
from safetensors.torch import save_file

LAYER = SIDE * SIDE * 4


def test_ranks_serve_every_placement_from_one_copy(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(5)
    layers = {f"blocks.{number}.weight": torch.randn(SIDE, SIDE, generator=generator) / 8 for number in range(LAYERS)}
    save_file(layers, tmp_path / "stack.safetensors")
    outcome = run_ranks("placements_of_ranks", 2, str(tmp_path))
    assert outcome.code == 0, "\n".join(outcome.errors)
    of_all = LAYERS * LAYER
    pinned = {"offload": 0, "streamed": of_all, "half": of_all // 2, "resident": 0}
    pageable = {"offload": of_all, "streamed": 0, "half": 0, "resident": 0}
    for one, other in zip(outcome.result(0), outcome.result(1), strict=True):
        name = one[0]
        assert [one[1], other[1], one[4], other[4]] == [True] * 4, name
        assert (one[2] + other[2], one[3] + other[3]) == (pinned[name], pageable[name]), name
        assert one[2] == other[2], f"{name}: each rank locks its share"
