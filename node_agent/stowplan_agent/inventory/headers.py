"""Read and check the header of one safetensors file, without touching a weight.

A file that was cut short, or is something else, must be found here, in milliseconds and by name, and not by a loader
after it has filled the device. The format (safetensors, "Format"): 8 bytes with the header's length, little endian;
the header, JSON; the data. The checks are those of the reference implementation, tensor by tensor: known dtype, size
equal to the product of the shape, data without gaps or overlaps, and exactly as long as the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Final, TypeGuard

from stowplan_agent.inventory.errors import InventoryError
from stowplan_agent.inventory.tensors import DTYPE_BITS, TensorInfo

LENGTH_BYTES: Final = 8
LARGEST_HEADER: Final = 100_000_000
"""Bytes; the reference implementation's own bound."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor and where its bytes are: ``begin`` to ``end``, counted from the start of the file."""

    info: TensorInfo
    begin: int
    end: int


@dataclass(frozen=True)
class Header:
    """The checked header of one file."""

    path: Path
    file_bytes: int
    tensors: Mapping[str, StoredTensor]
    metadata: Mapping[str, str]


def read_header(path: Path) -> Header:
    """Read and check the header of ``path``. Raises `InventoryError` naming the file and what is wrong with it."""
    try:
        with path.open("rb") as file:
            file_bytes = file.seek(0, 2)
            file.seek(0)
            length = int.from_bytes(file.read(LENGTH_BYTES), "little")
            if file_bytes < LENGTH_BYTES:
                raise _truncated(path, LENGTH_BYTES, file_bytes)
            if length > LARGEST_HEADER:
                raise InventoryError(
                    f"{path} is no safetensors file: it announces a header of {length} bytes, and the limit is "
                    f"{LARGEST_HEADER}; download it again"
                )
            if file_bytes < LENGTH_BYTES + length:
                raise _truncated(path, LENGTH_BYTES + length, file_bytes)
            return parse_header(file.read(length), file_bytes, path)
    except FileNotFoundError:
        raise InventoryError(f"{path} does not exist; download the checkpoint again") from None
    except OSError as error:
        raise InventoryError(f"{path} cannot be read ({error.strerror}); make it a readable file") from None


def parse_header(text: bytes, file_bytes: int, path: Path) -> Header:
    """Check the JSON ``text`` of a header against the size of its file. Raises `InventoryError`."""
    try:
        content = json.loads(text.decode("utf-8"), object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        raise InventoryError(f"{path} has a header that is not JSON ({str(error)[:120]}); download it again") from None
    if not isinstance(content, dict):
        raise InventoryError(f"{path} has a header that is no JSON object; download it again")
    metadata = content.pop("__metadata__", None) or {}
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise InventoryError(f"{path} has metadata other than text in its header; download it again")
    start = LENGTH_BYTES + len(text)
    tensors = {name: _tensor(path, name, entry, start) for name, entry in content.items()}
    _check_layout(path, tensors, start, file_bytes)
    return Header(path, file_bytes, tensors, metadata)


def _tensor(path: Path, name: str, entry: Any, start: int) -> StoredTensor:
    fields: dict[str, Any] = entry if isinstance(entry, dict) else {}
    dtype, shape, offsets = (fields.get(field) for field in ("dtype", "shape", "data_offsets"))
    if not isinstance(dtype, str) or not _sizes(shape) or not _sizes(offsets) or len(offsets) != 2:
        raise InventoryError(f"{path}: the header of tensor {_short(name)} lacks a valid dtype, shape or data_offsets")
    if dtype not in DTYPE_BITS:
        raise InventoryError(
            f"{path}: tensor {_short(name)} has the unknown dtype {_short(dtype)}; known are {', '.join(DTYPE_BITS)}"
        )
    begin, end = offsets
    bits = prod(shape) * DTYPE_BITS[dtype]
    if end - begin != bits // 8 or bits % 8:
        raise InventoryError(
            f"{path}: tensor {_short(name)} takes {end - begin} bytes, and its dtype {dtype} and shape "
            f"{_short(shape)} need {bits / 8:g}; download it again"
            if bits < 1 << 63
            else f"{path}: tensor {_short(name)} has the impossible shape {_short(shape)}; download it again"
        )
    return StoredTensor(TensorInfo(tuple(shape), dtype, end - begin), start + begin, start + end)


def _check_layout(path: Path, tensors: Mapping[str, StoredTensor], start: int, file_bytes: int) -> None:
    position = start
    for name, tensor in sorted(tensors.items(), key=lambda item: (item[1].begin, item[1].end)):
        if tensor.begin != position:
            raise InventoryError(
                f"{path}: tensor {_short(name)} begins at byte {tensor.begin}, and the one before it ends at "
                f"{position}; download it again"
            )
        position = tensor.end
    if file_bytes < position:
        raise _truncated(path, position, file_bytes)
    if file_bytes > position:
        raise InventoryError(
            f"{path} is longer than its header says: {position} bytes expected, {file_bytes} found; download it again"
        )


def _truncated(path: Path, expected: int, found: int) -> InventoryError:
    return InventoryError(f"{path} is truncated: {expected} bytes expected, {found} found; download it again")


def _sizes(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(size) is int and 0 <= size < 1 << 63 for size in value)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        raise ValueError("a key occurs twice")
    return content
