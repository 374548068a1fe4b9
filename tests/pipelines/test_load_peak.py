"""H10, RUNTIME 19: while loading, host memory stays within what the placement holds plus a stated constant.

In a process of its own per case, with a thread that asks the kernel every few milliseconds. What the emulated device
holds is host memory too, so it counts as held.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from diffusers import FluxTransformer2DModel

from stowplan_agent.accelerators.reading_threads import reading_threads
from stowplan_agent.weights.loading.source import CONVERTED_AT_ONCE

CONSTANT = (32 << 20) + 4 * CONVERTED_AT_ONCE * reading_threads()
"""Bytes beside the weights: what libraries take while modules are built, and what each thread reads to convert."""

PROGRAM = """
import json, sys, threading, torch
from pathlib import Path
from diffusers import FluxTransformer2DModel
from stowplan_agent.accelerators.emulated import EmulatedAccelerator, EmulatedCard
from stowplan_agent.pipeline import deferred_conversions
from stowplan_agent.weights import WeightsEngine
from stowplan_agent.weights.ledger import Tier
from stowplan_api.placement import ComponentPlacement, GroupPlacement, Placement

def anonymous():
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) << 10

def entry(parts):
    (part,) = parts
    if share is None:
        return Placement(components=(ComponentPlacement(name=part.name, mode="Offload"),))
    groups = tuple(
        GroupPlacement(name=group.name, resident_layers=int(share * len(group.layer_bytes)), pinned_layers=(0,))
        for group in part.groups
    )
    return Placement(components=(ComponentPlacement(name=part.name, mode="Layerwise", groups=groups),))

path, dtype, share = sys.argv[1], getattr(torch, sys.argv[2]), json.loads(sys.argv[3])
FluxTransformer2DModel.from_pretrained(path + "-small", dtype=dtype)  # imports, caches
engine = WeightsEngine(EmulatedAccelerator(EmulatedCard(1 << 40)))
highest, done = 0, threading.Event()

def watch():
    global highest
    while not done.wait(0.002):
        highest = max(highest, anonymous())

thread = threading.Thread(target=watch)
before = anonymous()
thread.start()
with deferred_conversions() as deferred:
    model = FluxTransformer2DModel.from_pretrained(path, dtype=dtype, use_safetensors=True)
engine.adopt({"transformer": model}, entry, converted_from=deferred.source_of)
done.set()
thread.join()
held = sum(engine.ledger.total(tier) for tier in Tier)
print(json.dumps({"peak": highest - before, "held": held, "weights": model.get_memory_footprint()}))
"""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An fp32 denoiser of 260 MiB."""
    folder = tmp_path_factory.mktemp("peak")
    for name, layers in (("model", 5), ("model-small", 1)):
        FluxTransformer2DModel(
            in_channels=16, num_layers=layers, num_single_layers=layers, attention_head_dim=64, num_attention_heads=8,
            joint_attention_dim=64, pooled_projection_dim=64, axes_dims_rope=(16, 24, 24),
        ).save_pretrained(folder / name, max_shard_size="64MB")  # fmt: skip
    return folder / "model"


@pytest.mark.parametrize(("dtype", "share"), [("bfloat16", None), ("float32", 0.6), ("bfloat16", 1.0)])
def test_h10_a_load_takes_what_the_placement_holds_and_a_constant(
    checkpoint: Path, dtype: str, share: float | None
) -> None:
    """As it is stored, and converted on the way."""
    command = [sys.executable, "-c", PROGRAM, str(checkpoint), dtype, json.dumps(share)]
    done = subprocess.run(command, env=os.environ, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout)
    assert found["held"] >= found["weights"] >= 130 << 20
    assert found["peak"] <= found["held"] + CONSTANT, found
