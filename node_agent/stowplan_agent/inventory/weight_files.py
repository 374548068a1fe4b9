"""Which files hold the weights of one component, and that all of them are there.

diffusers and transformers look for fixed file names; choosing other files than the loader will choose would make every
number of the inventory wrong. So the names and their order are the loaders' own (diffusers, utils/constants.py and
models/model_loading_utils.py; transformers, utils/__init__.py), with a variant such as ``fp16`` in the loaders' places.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from stowplan_agent.inventory.errors import InventoryError
from stowplan_agent.inventory.headers import Header, read_header
from stowplan_agent.inventory.tensors import TensorInfo

STEMS: Final = {"diffusers": "diffusion_pytorch_model", "transformers": "model"}
PICKLES: Final = ("*.bin", "*.ckpt", "*.pt", "*.pth")
GGUF: Final = "*.gguf"
"""llama.cpp's format, most often quantised; diffusers reads it only as a single file, into tensors of its own class."""


def find_weights(folder: Path, library: str, variant: str | None) -> tuple[Header, ...]:
    """The checked headers of a component's weight files, in order of their names; empty when it has none.

    With ``variant`` its files are preferred and plain ones are taken where there are none, as the loaders do.
    Raises `InventoryError` for a missing shard or tensor, a malformed index, and weights that no loader would find.
    """
    known = STEMS.get(library)
    for chosen in dict.fromkeys((variant, None)):
        for stem in (known,) if known else STEMS.values():
            single = folder / (f"{stem}.{chosen}.safetensors" if chosen else f"{stem}.safetensors")
            index = folder / f"{stem}.safetensors.index{f'.{chosen}' if chosen else ''}.json"
            # transformers prefers the single file, diffusers the index
            if single.is_file() and (library == "transformers" or not index.is_file()):
                return (read_header(single),)
            if index.is_file():
                return _read_shards(folder, index)
    _explain_others(folder)
    return ()


def merge_tensors(headers: tuple[Header, ...]) -> Mapping[str, TensorInfo]:
    """Name to tensor over all files of a component. Raises `InventoryError` for a name in two files."""
    merged: dict[str, TensorInfo] = {}
    for header in headers:
        for name, stored in header.tensors.items():
            if name in merged:
                raise InventoryError(f"{header.path}: tensor {name!r} is in another shard too; download it again")
            merged[name] = stored.info
    return merged


def read_json(path: Path) -> Any:
    """The JSON value of a file. Raises `InventoryError` naming the file when it is missing or malformed."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InventoryError(f"{path} does not exist; download the checkpoint again") from None
    except OSError as error:
        raise InventoryError(f"{path} cannot be read ({error.strerror}); make it a readable file") from None
    except (ValueError, RecursionError) as error:
        raise InventoryError(f"{path} is not JSON ({str(error)[:120]}); download it again") from None


def read_json_object(path: Path) -> dict[str, Any]:
    """As `read_json`, for a file that must hold an object."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise InventoryError(f"{path} holds no JSON object; download it again")
    return value


def _read_shards(folder: Path, index: Path) -> tuple[Header, ...]:
    weight_map = read_json_object(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map or not all(isinstance(v, str) for v in weight_map.values()):
        raise InventoryError(f"{index} has no weight_map from tensors to files; download it again")
    files = sorted(set(weight_map.values()))
    for file in files:
        if Path(file).name != file:
            raise InventoryError(f"{index} names the shard {file!r} outside its own folder; download it again")
        if not (folder / file).is_file():
            raise InventoryError(f"{folder / file} does not exist, and {index.name} names it; download it again")
    headers = {file: read_header(folder / file) for file in files}
    for name, file in weight_map.items():
        if name not in headers[file].tensors:
            raise InventoryError(f"{folder / file} lacks tensor {name!r}, which {index.name} says it holds")
    return tuple(headers.values())


def _explain_others(folder: Path) -> None:
    """Raise for files that look like weights but that would not be loaded, rather than say that there are none."""
    found = sorted(folder.glob("*.safetensors"))
    for path in found:
        if not path.is_file():
            raise InventoryError(f"{path} is a folder or a link to nothing, not a file; download the checkpoint again")
    others = [path.name for path in found]
    if others:
        variants = sorted({name.split(".")[1].split("-")[0] for name in others if name.count(".") == 2})
        hint = f"it has the variants {', '.join(variants)}" if variants else f"it has {others[0]}"
        raise InventoryError(
            f"{folder} has no model.safetensors or diffusion_pytorch_model.safetensors of the asked variant; {hint}"
        )
    pickles = sorted(path.name for pattern in PICKLES for path in folder.glob(pattern))
    if pickles:
        raise InventoryError(
            f"{folder} has weights only as {pickles[0]}, and only safetensors are read; convert the checkpoint"
        )
    packed = sorted(path.name for path in folder.glob(GGUF))
    if packed:
        raise InventoryError(
            f"component {folder.name} of {folder.parent} has weights only as {packed[0]}, and GGUF is not read; give "
            "a plain checkpoint, or this one dequantised and saved as safetensors"
        )
