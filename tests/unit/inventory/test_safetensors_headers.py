"""A header is read exactly, and anything that is not a whole valid file is refused by name and number."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import save

from stowplan_agent.inventory.errors import InventoryError
from stowplan_agent.inventory.headers import parse_header, read_header

NAMES = st.text(min_size=1, max_size=12).filter(lambda name: name != "__metadata__")
SHAPES = st.lists(st.integers(0, 4), max_size=3).map(tuple)
DTYPES = st.sampled_from([np.float32, np.float16, np.int64, np.uint8, np.bool_])
FILES = st.dictionaries(NAMES, st.tuples(SHAPES, DTYPES), min_size=1, max_size=5).map(
    lambda tensors: save({name: np.zeros(shape, dtype) for name, (shape, dtype) in tensors.items()})
)


def entry(dtype: Any = "F32", shape: Any = (2, 2), offsets: Any = (0, 16)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


@given(FILES)
@settings(max_examples=60, deadline=None)
def test_reads_what_the_reference_implementation_wrote(tmp_path_factory: Any, content: bytes) -> None:
    path = tmp_path_factory.mktemp("file") / "w.safetensors"
    path.write_bytes(content)
    header = read_header(path)
    with safe_open(str(path), framework="np") as reference:
        assert set(header.tensors) == set(reference.keys())
        for name, stored in header.tensors.items():
            array = reference.get_tensor(name)
            assert stored.info.shape == array.shape
            assert stored.info.nbytes == stored.end - stored.begin == array.nbytes
    assert header.file_bytes == len(content) == max(stored.end for stored in header.tensors.values())


@given(FILES, st.data())
@settings(max_examples=150, deadline=None)
def test_every_truncation_is_refused_in_one_sentence(
    tmp_path_factory: Any, content: bytes, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("file") / "w.safetensors"
    path.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    with pytest.raises(InventoryError) as refusal:
        read_header(path)
    assert str(path) in str(refusal.value)
    assert f"{path.stat().st_size} found" in str(refusal.value)


@given(FILES, st.data())
@settings(max_examples=200, deadline=None)
def test_damage_is_refused_or_harmless(tmp_path_factory: Any, content: bytes, data: st.DataObject) -> None:
    """What we accept, the reference implementation accepts too; what we refuse, we refuse as an InventoryError."""
    position = data.draw(st.integers(0, len(content) - 1))
    damaged = content[:position] + data.draw(st.binary(max_size=3)) + content[position + 1 :]
    path = tmp_path_factory.mktemp("file") / "w.safetensors"
    path.write_bytes(damaged)
    try:
        header = read_header(path)
    except InventoryError as refusal:
        assert str(path) in str(refusal)
        return
    with safe_open(str(path), framework="np") as reference:
        assert set(header.tensors) == set(reference.keys())


@given(st.binary(max_size=200))
def test_any_bytes_are_a_header_or_a_refusal(text: bytes) -> None:
    with pytest.raises(InventoryError):
        parse_header(text, 7, Path("w.safetensors"))  # no whole file is this short


@pytest.mark.parametrize(
    ("header", "says"),
    [
        ([], "no JSON object"),
        ({"a": 1}, "lacks a valid dtype"),
        ({"a": entry(dtype="Q4_K")}, "unknown dtype 'Q4_K'"),
        ({"a": entry(shape=[-1, 4])}, "lacks a valid"),
        ({"a": entry(shape=[True, 4])}, "lacks a valid"),
        ({"a": entry(offsets=[0])}, "lacks a valid"),
        ({"a": entry(offsets=[0, 12])}, "takes 12 bytes, and its dtype F32 and shape [2, 2] need 16"),
        ({"a": entry(offsets=[16, 0])}, "takes -16 bytes"),
        ({"a": entry(shape=[2**40, 2**40])}, "impossible shape"),
        ({"a": entry(), "b": entry(offsets=[8, 24])}, "begins at byte"),
        ({"a": entry(), "b": entry(offsets=[20, 36])}, "begins at byte"),
        ({"a": entry(dtype="F4", shape=[3], offsets=[0, 1])}, "need 1.5"),
        ({"__metadata__": {"format": 1}, "a": entry()}, "metadata other than text"),
    ],
)
def test_each_fault_has_its_sentence(header: Any, says: str) -> None:
    text = json.dumps(header).encode()
    with pytest.raises(InventoryError) as refusal:
        parse_header(text, 8 + len(text) + 16, Path("w.safetensors"))
    assert says in str(refusal.value)
    assert "w.safetensors" in str(refusal.value)


def test_the_sentence_of_a_truncated_file_has_both_sizes(tmp_path: Path) -> None:
    text = json.dumps({"a": entry()}).encode()
    path = tmp_path / "w.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(10))
    with pytest.raises(
        InventoryError, match=rf"w.safetensors is truncated: {24 + len(text)} bytes expected, {18 + len(text)} found"
    ):
        read_header(path)
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(17))
    with pytest.raises(InventoryError, match="longer than its header says"):
        read_header(path)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\xff" * 64, "no safetensors file"),
        (b"", "8 bytes expected, 0 found"),
        ((10).to_bytes(8, "little") + b"[" * 10, "not JSON"),
        ((8000).to_bytes(8, "little") + b"[" * 8000, "not JSON"),
        ((14).to_bytes(8, "little") + b'{"a":1,"a":2} ', "a key occurs twice"),
    ],
)
def test_other_files_are_refused(content: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    path.write_bytes(content)
    with pytest.raises(InventoryError) as refusal:
        read_header(path)
    assert says in str(refusal.value)


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(InventoryError, match="does not exist"):
        read_header(tmp_path / "gone.safetensors")
    with pytest.raises(InventoryError, match="cannot be read"):
        read_header(tmp_path)
