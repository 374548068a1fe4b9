"""Name what is quantised before anything is loaded: such weights cannot be hosted, and no library says so well.

A quantiser replaces modules and tensors by classes of its own, which may refuse to move, or move and change their bits
(https://github.com/sgl-project/sglang/issues/29903). And it decides while it loads: diffusers fails with the words of
a package that is not installed and without the name of the component; transformers skips a method that it does not
know and loads packed integers as weights, or dequantises without a word. So a component whose files say that it is
quantised, or whose weights have a dtype that no plain layer computes in, is refused at once, and nothing else is tried.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from stowplan_agent.inventory.errors import InventoryError
from stowplan_agent.inventory.headers import Header
from stowplan_agent.inventory.tensors import TensorInfo

SETTINGS: Final = ("quantization_config", "compression_config")
"""Where a config, or a part of one, states its quantiser (transformers, diffusers; older compressed-tensors)."""

METHODS: Final = ("quant_method", "quant_backend", "quant_algo", "quant_type")
"""Where such a setting names the method, most telling first."""

SIDE_FILES: Final = {
    "quanto_qmap.json": "quanto",
    "quantize_config.json": "gptq",
    "hf_quant_config.json": "modelopt",
}
"""Files that only a quantiser writes next to its weights, and which one that is."""

PACKED: Final = frozenset({"I8", "U8", "I16", "U16", "I32", "U32", "I64", "U64"})
"""What quantisers pack weights into; an index or a counter has one of these too, but is not called a weight."""

WAY_OUT: Final = "give it in bfloat16, float16 or float32: a plain checkpoint, or this one dequantised and saved again"


def check_index(index: Path, content: Mapping[str, Any]) -> None:
    """Refuse a pipeline whose index wants its parts quantised: diffusers drops the setting. Raises `InventoryError`."""
    for setting in _settings(content):
        raise InventoryError(
            f"{index} asks for quantisation with {_method(setting)}, which nothing would do; give a plain checkpoint "
            "without this setting"
        )


def check_configs(folder: Path, configs: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse the component in ``folder`` where a config of it, or a file beside them, names a quantiser.

    ``configs`` are by file name. Raises `InventoryError` with the component, the method and the way out.
    """
    for file, method in SIDE_FILES.items():
        if (folder / file).is_file():
            raise _refusal(folder, f"with {method}, by its {file}")
    for file, config in configs.items():
        for setting in _settings(config):
            raise _refusal(folder, f"with {_method(setting)}, by its {file}")


def check_weights(folder: Path, headers: Iterable[Header]) -> None:
    """Refuse the component in ``folder`` where its weight files show a quantiser's hand. Raises `InventoryError`."""
    for header in headers:
        for key in SETTINGS:
            if key in header.metadata:
                raise _refusal(folder, f"by the {key} in the header of {header.path.name}")
        for name, stored in header.tensors.items():
            if _is_quantised(name, stored.info):
                raise _refusal(folder, f"to {stored.info.dtype}: {header.path.name} holds {name[:120]!r} so")


def _refusal(folder: Path, how: str) -> InventoryError:
    return InventoryError(f"component {folder.name} of {folder.parent} is quantised {how}; {WAY_OUT}")


def _is_quantised(name: str, info: TensorInfo) -> bool:
    """Floats of a byte or less, or a matrix of integers under the name of a weight (``qweight``, ``weight._data``)."""
    if info.dtype.startswith(("F8", "F6", "F4")):
        return True
    return info.dtype in PACKED and len(info.shape) > 1 and any("weight" in part for part in name.split(".")[-2:])


def _settings(config: Mapping[str, Any]) -> Iterator[object]:
    """Quantiser settings in a config and its parts (a language model's within a vision model's), outermost first."""
    pending: list[Mapping[str, Any]] = [config]
    while pending:  # no recursion, for a config comes from a file and may be of any depth
        part = pending.pop(0)
        yield from (part[key] for key in SETTINGS if part.get(key) is not None)
        pending += [value for value in part.values() if isinstance(value, dict)]


def _method(setting: object) -> str:
    """The method's name as the setting gives it; bitsandbytes once gave none, and the width instead."""
    fields = setting if isinstance(setting, dict) else {}
    named = next((fields[key] for key in METHODS if isinstance(fields.get(key), str)), None)
    if named is None and (fields.get("load_in_4bit") or fields.get("load_in_8bit")):
        named = "bitsandbytes"
    return str(named)[:60] if named is not None else "a method that it does not name"
