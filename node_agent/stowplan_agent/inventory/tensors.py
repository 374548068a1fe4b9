"""What the inventory knows of one tensor: shape, precision, bytes. Never its values.

The engine packs the storages of a layer into one flat buffer in which each starts on a 256-byte boundary, so bytes are
counted that way here too: what the inventory predicts is what the device will hold.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from stowplan_agent.inventory.errors import InventoryError

ALIGNMENT: Final = 256
"""Bytes; RUNTIME.md, "The weights engine"."""

DTYPE_BITS: Final = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "U16": 16, "I16": 16, "F16": 16, "BF16": 16, "U32": 32, "I32": 32, "F32": 32, "U64": 64, "I64": 64, "F64": 64,
    "C64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip
"""Bits of one element by the name that safetensors gives a dtype (safetensors, tensor.rs, enum Dtype)."""

TORCH_DTYPES: Final = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "int16": "I16", "int32": "I32", "int64": "I64", "uint16": "U16",
    "uint32": "U32", "uint64": "U64", "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64",
    "complex64": "C64", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
}  # fmt: skip
"""torch's name of a dtype to that of safetensors (safetensors, bindings/python, torch.py)."""

LOAD_DTYPES: Final = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}
"""The precisions a deployment may ask for, and their names in safetensors."""

CONVERTED: Final = frozenset({"F64", "F32", "F16", "BF16"})
"""What a loader converts to the asked precision; integers, booleans and quantised elements stay as they are."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Shape, name of the dtype, and bytes. The dtype is only compared, so a torch name serves as well."""

    shape: tuple[int, ...]
    dtype: str
    nbytes: int


def packed_bytes(sizes: Iterable[int]) -> int:
    """Bytes of a flat buffer that holds storages of these sizes (bytes), each aligned to `ALIGNMENT`."""
    return sum(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes)


def check_dtype(name: str) -> str:
    """The safetensors name of a precision to load in. Raises `InventoryError` listing the allowed ones."""
    if name not in LOAD_DTYPES:
        raise InventoryError(f"dtype {name!r} is not one of {', '.join(LOAD_DTYPES)}; set one of these")
    return LOAD_DTYPES[name]


def loaded(info: TensorInfo, dtype: str) -> TensorInfo:
    """The same tensor after loading in ``dtype`` (a safetensors name): floats are converted, others are not."""
    if info.dtype not in CONVERTED or info.dtype == dtype:
        return info
    return TensorInfo(info.shape, dtype, info.nbytes * DTYPE_BITS[dtype] // DTYPE_BITS[info.dtype])
