"""Real pipelines loaded with their conversions put off: the same tensors as ever, and next to no memory until then."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import DiffusionPipeline, FluxTransformer2DModel
from transformers import MixtralConfig, MixtralForCausalLM, T5Config, T5EncoderModel

from pipelines.tiny_requests import NAMES, PLACEMENTS
from stowplan_agent.accelerators.emulated import EmulatedAccelerator, EmulatedCard
from stowplan_agent.pipeline import Deferred, HostedPipeline, PipelineRequest, deferred_conversions
from stowplan_agent.pipeline.completeness import missing_weights
from stowplan_agent.weights import WeightsEngine
from stowplan_api.placement import Placement

DTYPES = ["bfloat16", "float16", "float32"]
Tensors = dict[str, torch.Tensor]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_a_settled_pipeline_equals_an_ordinary_one(write_tiny: Callable[[str], Path], name: str, dtype: str) -> None:
    path = write_tiny(name)
    expected = _tensors(_pipeline(path, dtype))
    with missing_weights() as missing, deferred_conversions() as deferred:
        pipeline = _pipeline(path, dtype)
    assert not missing
    loaded = _tensors(pipeline)
    assert _large(loaded, of=lambda tensor: _promised(deferred, tensor)) > 0.7 or dtype == "float32"
    deferred.settle_all()
    _assert_equal(loaded, expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_so_does_one_that_is_stored_in_the_smaller_dtype(tiny_wan: Path, tmp_path: Path, dtype: str) -> None:
    """Modules that its class keeps in fp32 are then the ones converted, and grow."""
    path = tmp_path / "half"
    _pipeline(tiny_wan, "bfloat16").to(torch.bfloat16).save_pretrained(path)
    expected = _tensors(_pipeline(path, dtype))
    with deferred_conversions() as deferred:
        loaded = _tensors(_pipeline(path, dtype))
    kept = {key: tensor for key, tensor in loaded.items() if key.startswith("transformer.") and "time_embedder" in key}
    assert {tensor.dtype for tensor in kept.values()} == {torch.float32}
    assert any(_promised(deferred, tensor) for tensor in kept.values())
    deferred.settle_all()
    _assert_equal(loaded, expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_weights_that_are_fused_on_loading_are_fused_from_their_values(tmp_path: Path, dtype: str) -> None:
    """Experts are stored one by one, under other names, and loaded as one tensor; head and embedding are one."""
    config = MixtralConfig(
        vocab_size=256, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, num_local_experts=4, tie_word_embeddings=True,
    )  # fmt: skip
    MixtralForCausalLM(config).save_pretrained(tmp_path)
    expected = MixtralForCausalLM.from_pretrained(tmp_path, dtype=getattr(torch, dtype))
    with missing_weights() as missing, deferred_conversions() as deferred:
        model = MixtralForCausalLM.from_pretrained(tmp_path, dtype=getattr(torch, dtype))
    assert not missing
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert _promised(deferred, model.lm_head.weight) is (dtype != "float32")
    assert not _promised(deferred, model.model.layers[0].mlp.experts.gate_up_proj)
    deferred.settle_all()
    _assert_equal(_named("", model), _named("", expected))


@pytest.mark.parametrize("place", ["resident", "streamed"])
@pytest.mark.parametrize("name", NAMES)
def test_the_engine_converts_what_it_takes_over(write_tiny: Callable[[str], Path], name: str, place: str) -> None:
    path = write_tiny(name)
    expected = _tensors(_pipeline(path, "bfloat16"))
    with deferred_conversions() as deferred:
        pipeline = _pipeline(path, "bfloat16")
    engine = WeightsEngine(EmulatedAccelerator(EmulatedCard(capacity_bytes=1 << 30)))
    networks = {name: part for name, part in pipeline.components.items() if isinstance(part, torch.nn.Module)}
    engine.adopt(
        networks,
        lambda parts: Placement(components=[PLACEMENTS[place](part) for part in parts]),
        converted_from=deferred.source_of,
    )
    assert deferred.pending_bytes == 0, "no promise outlives the memory that it was about"
    _assert_equal(_tensors(pipeline), expected)
    engine.close()


def test_a_hosted_pipeline_runs_on_weights_that_nobody_took_over(tiny_wan: Path) -> None:
    request = PipelineRequest(width=32, height=32, frames=5, steps=2)
    ordinary = HostedPipeline(_pipeline(tiny_wan, "bfloat16"), torch.device("cpu"), Deferred())
    loaded = HostedPipeline.load(tiny_wan, "bfloat16", torch.device("cpu"))
    assert np.array_equal(loaded.run(request), ordinary.run(request))
    assert loaded.deferred.pending_bytes == 0


MEASURED = """
import json, sys, torch, diffusers, transformers
from stowplan_agent.pipeline import deferred_conversions
library, kind, path = sys.argv[1:]
load = getattr(sys.modules[library], kind).from_pretrained

def anonymous():
    with open("/proc/self/smaps_rollup") as lines:
        return max(int(line.split()[1]) * 1024 for line in lines if line.startswith(("Anonymous:", "Private_Dirty:")))

def grown(dtype):
    before = anonymous()
    with deferred_conversions() as deferred:
        model = load(path, dtype=dtype, use_safetensors=True)
    loaded, pending = anonymous() - before, deferred.pending_bytes
    deferred.settle_all()
    return {"loaded": loaded, "pending": pending, "settled": anonymous() - before, "size": model.get_memory_footprint()}

load(path + "-small", use_safetensors=True)
print(json.dumps({str(dtype)[6:]: grown(dtype) for dtype in (torch.float32, torch.bfloat16)}))
"""


def _flux(layers: int) -> Any:
    return FluxTransformer2DModel(
        in_channels=16, num_layers=layers, num_single_layers=layers, attention_head_dim=64, num_attention_heads=8,
        joint_attention_dim=64, pooled_projection_dim=64, axes_dims_rope=(16, 24, 24),
    )  # fmt: skip


def _t5(layers: int) -> Any:
    return T5EncoderModel(T5Config(vocab_size=512, d_model=1024, d_ff=4096, num_heads=16, num_layers=layers))


@pytest.mark.parametrize("library", ["diffusers", "transformers"])
def test_loading_takes_no_memory_of_its_own(tmp_path: Path, library: str) -> None:
    """In a process of its own: memory that others freed there would hide what a load takes."""
    build = _flux if library == "diffusers" else _t5
    small = build(1)
    small.save_pretrained(tmp_path / "model-small")
    build(5).save_pretrained(tmp_path / "model", max_shard_size="64MB")
    found = _measured(library, type(small).__name__, tmp_path / "model")
    for dtype, figures in found.items():
        assert figures["size"] >= 100 << 20, "large against everything else that a load takes"
        assert figures["loaded"] < figures["size"] // 10, (dtype, found)
    assert found["float32"]["pending"] == 0
    assert found["bfloat16"]["pending"] > 0.99 * found["bfloat16"]["size"]
    assert found["bfloat16"]["settled"] > 0.99 * found["bfloat16"]["size"], "what was put off is seen by this measure"


def _measured(library: str, kind: str, path: Path) -> dict[str, dict[str, int]]:
    command = [sys.executable, "-c", MEASURED, library, kind, str(path)]
    done = subprocess.run(command, env=os.environ, check=True, capture_output=True, text=True)
    found: dict[str, dict[str, int]] = json.loads(done.stdout)
    return found


def _pipeline(path: Path, dtype: str) -> Any:
    return DiffusionPipeline.from_pretrained(path, dtype=getattr(torch, dtype), local_files_only=True)


def _tensors(pipeline: Any) -> Tensors:
    networks = {name: part for name, part in pipeline.components.items() if isinstance(part, torch.nn.Module)}
    return {key: tensor for name, module in networks.items() for key, tensor in _named(name, module).items()}


def _named(prefix: str, module: torch.nn.Module) -> Tensors:
    parameters = dict(module.named_parameters(prefix=prefix, remove_duplicate=False))
    return parameters | dict(module.named_buffers(prefix=prefix, remove_duplicate=False))


def _promised(deferred: Deferred, tensor: torch.Tensor) -> bool:
    return deferred.source_of(tensor.untyped_storage()) is not None


def _large(tensors: Tensors, of: Callable[[torch.Tensor], bool]) -> float:
    return sum(tensor.nbytes for tensor in tensors.values() if of(tensor)) / sum(t.nbytes for t in tensors.values())


def _assert_equal(loaded: Tensors, expected: Tensors) -> None:
    assert loaded.keys() == expected.keys()
    for key, tensor in loaded.items():
        other = expected[key]
        assert (type(tensor), tensor.dtype, tensor.stride(), tensor.requires_grad) == (
            type(other), other.dtype, other.stride(), other.requires_grad,
        ), key  # fmt: skip
        assert torch.equal(
            tensor.detach().reshape(-1).view(torch.uint8), other.detach().reshape(-1).view(torch.uint8)
        ), key
    ties = [[id(tensor) for tensor in tensors.values()] for tensors in (loaded, expected)]
    assert [ties[0].index(one) for one in ties[0]] == [ties[1].index(one) for one in ties[1]]
