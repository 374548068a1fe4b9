"""H13: a quantised component is named before it is loaded, in one sentence with the method and the way out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stowplan_agent.inventory.checkpoint import read_checkpoint
from stowplan_agent.inventory.errors import InventoryError

WEIGHTS = {"text_encoder": "model.safetensors", "vae": "diffusion_pytorch_model.safetensors"}


def set_config(root: Path, part: str, **changes: Any) -> None:
    file = root / part / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def refusal(root: Path) -> str:
    with pytest.raises(InventoryError) as refused:
        read_checkpoint(root)
    said = str(refused.value)
    assert "\n" not in said and "plain checkpoint" in said
    return said


@pytest.mark.parametrize("part", ["text_encoder", "transformer", "vae"])
@pytest.mark.parametrize(
    ("setting", "method"),
    [
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bitsandbytes"),
        ({"quant_method": "torchao"}, "torchao"),
        ({"quant_method": "quanto"}, "quanto"),
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "a method of next year"}, "a method of next year"),
        ({"quant_type": "float8wo"}, "float8wo"),
        ({"load_in_8bit": True}, "bitsandbytes"),
        ({"quant_method": 4}, "a method that it does not name"),
        ({}, "a method that it does not name"),
        ("int8", "a method that it does not name"),
    ],
)
def test_h13_a_config_that_names_a_quantiser(part: str, setting: object, method: str, checkpoint_folder: Path) -> None:
    set_config(checkpoint_folder, part, quantization_config=setting)
    assert f"component {part} of {checkpoint_folder} is quantised with {method}, by its config.json;" in refusal(
        checkpoint_folder
    )


def test_h13_a_quantiser_in_a_part_of_a_config(checkpoint_folder: Path) -> None:
    inner = {"text_config": {"compression_config": {"quant_method": "compressed-tensors"}}, "quantization_config": None}
    set_config(checkpoint_folder, "text_encoder", **inner)
    assert "component text_encoder of " in (said := refusal(checkpoint_folder))
    assert "with compressed-tensors" in said


@pytest.mark.parametrize("absent", [{"quantization_config": None}, {"quantization": {"bits": 4}}])
def test_no_quantiser_is_no_refusal(absent: dict[str, Any], checkpoint_folder: Path) -> None:
    set_config(checkpoint_folder, "transformer", **absent)
    assert read_checkpoint(checkpoint_folder).weighted


def test_h13_the_method_is_named_even_where_no_weights_are_found(checkpoint_folder: Path) -> None:
    set_config(checkpoint_folder, "vae", quantization_config={"quant_method": "bitsandbytes"})
    (checkpoint_folder / "vae" / WEIGHTS["vae"]).rename(checkpoint_folder / "vae" / "model.bin")
    assert "component vae of " in (said := refusal(checkpoint_folder)) and "with bitsandbytes" in said


@pytest.mark.parametrize(
    ("file", "method"),
    [("quanto_qmap.json", "quanto"), ("quantize_config.json", "gptq"), ("hf_quant_config.json", "modelopt")],
)
def test_h13_a_file_that_only_a_quantiser_writes(file: str, method: str, checkpoint_folder: Path) -> None:
    (checkpoint_folder / "transformer" / file).write_text("{}")
    assert f"is quantised with {method}, by its {file};" in refusal(checkpoint_folder)


@pytest.mark.parametrize(
    ("setting", "method"),
    [
        ({"quant_backend": "bitsandbytes_4bit", "components_to_quantize": ["transformer"]}, "bitsandbytes_4bit"),
        ({"quant_mapping": {"transformer": {}}}, "a method that it does not name"),
    ],
)
def test_h13_an_index_that_asks_for_quantisation(setting: dict[str, Any], method: str, checkpoint_folder: Path) -> None:
    index = checkpoint_folder / "model_index.json"
    index.write_text(json.dumps(json.loads(index.read_text()) | {"quantization_config": setting}))
    assert f"{index} asks for quantisation with {method}, " in refusal(checkpoint_folder)


@pytest.mark.parametrize(
    ("name", "dtype", "shape", "refused"),
    [
        ("blocks.0.attn.q.weight", "F8_E4M3", (16, 16), True),
        ("blocks.0.attn.q.bias", "F8_E4M3", (16,), True),
        ("blocks.0.attn.q.weight", "I8", (16, 16), True),
        ("blocks.0.attn.q.weight", "U8", (128, 1), True),
        ("blocks.0.attn.q.qweight", "I32", (2, 16), True),
        ("blocks.0.attn.q.weight._data", "I8", (16, 16), True),
        ("blocks.0.attn.q.weight_packed", "I32", (2, 16), True),
        ("embeddings.position_ids", "I64", (1, 77), False),
        ("attn.relative_position_index", "I64", (64, 64), False),
        ("norm.num_batches_tracked", "I64", (), False),
        ("mask", "U8", (4, 4), False),
        ("blocks.0.attn.q.weight", "BF16", (16, 16), False),
    ],
)
def test_h13_weights_of_a_quantisers_dtype(
    name: str,
    dtype: str,
    shape: tuple[int, ...],
    refused: bool,
    checkpoint_folder: Path,
    write_safetensors: Callable[[Path, Any], Path],
) -> None:
    for part, file in WEIGHTS.items():
        write_safetensors(checkpoint_folder / part / file, {name: (dtype, shape)})
        if refused:
            said = refusal(checkpoint_folder)
            assert f"component {part} of {checkpoint_folder} is quantised to {dtype}: {file} holds '{name}' so" in said
            write_safetensors(checkpoint_folder / part / file, {name: ("F32", shape)})
    assert read_checkpoint(checkpoint_folder).weighted


def test_h13_a_header_that_tells_of_a_quantiser(checkpoint_folder: Path) -> None:
    text = json.dumps({"__metadata__": {"quantization_config": "{}"}}).encode()
    file = checkpoint_folder / "vae" / WEIGHTS["vae"]
    file.write_bytes(len(text).to_bytes(8, "little") + text)
    assert "component vae of " in (said := refusal(checkpoint_folder))
    assert f"by the quantization_config in the header of {file.name}" in said
