"""The hosted pipeline gives everything back, however a request ends."""

from __future__ import annotations

import gc
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import T5Config, T5ForConditionalGeneration, modeling_utils

from stowplan_agent.accelerators.emulated import EmulatedAccelerator, EmulatedCard
from stowplan_agent.inventory import InventoryError, read_checkpoint, take_inventory
from stowplan_agent.pipeline import HostedPipeline, LoadError, PipelineRequest
from stowplan_agent.pipeline.completeness import check_layers
from stowplan_agent.pipeline.request import Stopped

CLIP = PipelineRequest(width=128, height=128, frames=17, steps=2)
LATENTS = 16 * 5 * 16 * 16 * 4
"""Bytes of the clip's latents; the decoder's features of one frame are many times as large."""


def _stop_at_once() -> bool:
    return True


def _broken(_module: torch.nn.Module, _args: object) -> None:
    raise RuntimeError("a layer broke")


@pytest.mark.parametrize("end", ["out of memory in decode", "stopped", "an error in decode"])
def test_a_request_that_breaks_off_leaves_no_activation_behind(tiny_wan: Path, end: str) -> None:
    """A causal VAE keeps features of earlier frames in itself while it decodes."""
    card = EmulatedAccelerator(EmulatedCard(capacity_bytes=(24 << 20) if end.startswith("out of") else (1 << 30)))
    hosted = HostedPipeline.load(tiny_wan, "float32", card.device)
    stop: Callable[[], bool] | None = _stop_at_once if end == "stopped" else None
    expected: dict[str, type[Exception]] = {
        "out of memory in decode": torch.OutOfMemoryError,
        "stopped": Stopped,
        "an error in decode": RuntimeError,
    }
    with card.running():
        hosted.run(replace(CLIP, width=32, height=32, frames=5))
        before = _held(card)
        if end.startswith("an error"):
            hosted.modules()["vae"].decoder.conv_out.register_forward_pre_hook(_broken)
        try:
            hosted.run(CLIP, stop=stop)
        except expected[end]:
            pass  # not pytest.raises: it would keep the traceback, and that the tensors
        else:
            pytest.fail("the request did not break off")
        assert _held(card) - before <= 4 * LATENTS, "a scheduler keeps some latents until the next request, no more"


@pytest.mark.parametrize(
    ("message", "short"),
    [
        ("CUDA error: out of memory\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.", True),
        ("CUDA driver error: CUDA_ERROR_OUT_OF_MEMORY", True),
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", True),
        ("cuDNN error: CUDNN_STATUS_ALLOC_FAILED", True),
        ("cuFFT error: CUFFT_ALLOC_FAILED", True),
        ("CUDA error: an illegal memory access was encountered", False),
        ("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED", False),
    ],
)
def test_memory_that_libraries_lack_outside_the_allocator_is_a_shortage_too(
    tiny_wan: Path, message: str, short: bool
) -> None:
    card = EmulatedAccelerator(EmulatedCard(capacity_bytes=1 << 30))
    hosted = HostedPipeline.load(tiny_wan, "float32", card.device)

    def lacking(_module: torch.nn.Module, _args: object) -> None:
        raise RuntimeError(message)

    hosted.modules()["transformer"].register_forward_pre_hook(lacking)
    with card.running(), pytest.raises(RuntimeError) as caught:
        hosted.run(replace(CLIP, width=32, height=32, frames=5))
    assert (type(caught.value) is torch.OutOfMemoryError) is short
    assert str(caught.value) == message


def test_weights_that_the_checkpoint_lacks_are_not_made_up(tiny_wan: Path, tmp_path: Path) -> None:
    """transformers fills what it misses with random numbers: other ones in every pod."""
    folder = tmp_path / "wan"
    shutil.copytree(tiny_wan, folder)
    config = folder / "text_encoder" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"num_layers": 6}))
    before = modeling_utils.log_state_dict_report
    with pytest.raises(LoadError, match=r"weights of the UMT5EncoderModel are not .*, encoder\.block\.4\."):
        HostedPipeline.load(folder, "float32", torch.device("cpu"))
    assert modeling_utils.log_state_dict_report is before


@pytest.mark.parametrize(("component", "layers"), [("transformer", 3), ("transformer", 6), ("text_encoder", 3)])
def test_a_config_with_fewer_layers_than_the_checkpoint_is_refused(
    tiny_wan: Path, tmp_path: Path, component: str, layers: int
) -> None:
    """Both libraries load it without a word, and its output is bit-equal to itself."""
    folder = tmp_path / "wan"
    shutil.copytree(tiny_wan, folder)
    config = folder / component / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"num_layers": layers}))
    found = take_inventory(read_checkpoint(folder), "float32")
    loaded = HostedPipeline.load(folder, "float32", torch.device("cpu"))
    with pytest.raises(LoadError, match=rf"{component}: the checkpoint has \d layers .* makes {layers};"):
        check_layers(found, loaded.modules())


@pytest.mark.parametrize(
    ("tower", "key", "layers", "renamed"),
    [
        ("text_config", "num_hidden_layers", 3, "model.language_model.layers"),
        ("text_config", "num_hidden_layers", 1, "model.language_model.layers"),
        ("text_config", "num_hidden_layers", 0, "model.language_model.layers"),
        ("vision_config", "depth", 2, "model.visual.blocks"),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_fewer_layers_are_refused_also_where_loading_renames_them(
    write_tiny: Callable[[str], Path], tmp_path: Path, tower: str, key: str, layers: int, renamed: str, dtype: str
) -> None:
    folder = tmp_path / "qwen"
    shutil.copytree(write_tiny("tiny-qwen"), folder)
    config = folder / "text_encoder" / "config.json"
    content = json.loads(config.read_text())
    content[tower][key] = layers
    if "layer_types" in content[tower]:
        content[tower]["layer_types"] = content[tower]["layer_types"][:layers]
    config.write_text(json.dumps(content))
    found = take_inventory(read_checkpoint(folder), dtype)
    loaded = HostedPipeline.load(folder, dtype, torch.device("cpu"))
    waiting = loaded.deferred.pending_bytes
    with pytest.raises(LoadError, match=rf"text_encoder: the checkpoint has 4 layers .* makes {layers} in {renamed};"):
        check_layers(found, loaded.modules())
    assert loaded.deferred.pending_bytes == waiting


@pytest.mark.parametrize("name", ["tiny-wan", "tiny-flux", "tiny-sdxl", "tiny-qwen"])
def test_a_whole_checkpoint_has_all_its_layers(write_tiny: Callable[[str], Path], name: str) -> None:
    """CLIP and Qwen are renamed on loading."""
    path = write_tiny(name)
    loaded = HostedPipeline.load(path, "bfloat16", torch.device("cpu"))
    waiting = loaded.deferred.pending_bytes
    check_layers(take_inventory(read_checkpoint(path), "bfloat16"), loaded.modules())
    assert loaded.deferred.pending_bytes == waiting > 0


@pytest.mark.parametrize("decoder", [4, 6])
def test_the_decoder_of_a_whole_t5_is_left_alone(tiny_flux: Path, tmp_path: Path, decoder: int) -> None:
    folder = tmp_path / "flux"
    shutil.copytree(tiny_flux, folder)
    t5 = folder / "text_encoder_2"
    whole = T5ForConditionalGeneration(T5Config.from_pretrained(t5, num_decoder_layers=decoder))
    whole.save_pretrained(t5)
    found = take_inventory(read_checkpoint(folder), "float32")
    (part,) = (one for one in found.components if one.name == "text_encoder_2")
    assert {group.name: len(group.layer_bytes) for group in part.groups} == {
        "encoder.block": 4,
        "decoder.block": decoder,
    }
    check_layers(found, HostedPipeline.load(folder, "float32", torch.device("cpu")).modules())


@pytest.mark.parametrize("part", ["text_encoder", "transformer"])
@pytest.mark.parametrize("method", ["bitsandbytes", "fp8", "a method of next year"])
def test_a_quantised_component_is_named_before_loading(
    write_tiny: Callable[[str], Path], tmp_path: Path, part: str, method: str
) -> None:
    """H13: diffusers would fail without naming the component, and transformers would load it without a word."""
    folder = tmp_path / "model"
    shutil.copytree(write_tiny("tiny-qwen"), folder)
    config = folder / part / "config.json"
    quantised = {"quantization_config": {"quant_method": method}}
    config.write_text(json.dumps(json.loads(config.read_text()) | quantised))
    with pytest.raises(InventoryError, match=f"component {part} .* is quantised with {method}, .* plain checkpoint"):
        read_checkpoint(folder)


def _held(card: EmulatedAccelerator) -> int:
    gc.collect()
    return card.counters().allocated
