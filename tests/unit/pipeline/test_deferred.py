"""A promised conversion is an ordinary tensor: whatever is done to it while loading, its values are those of `to`."""

from __future__ import annotations

import copy
import os
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from stowplan_agent.pipeline import deferred_conversions
from stowplan_agent.pipeline.lazy_loading import ONE_THREAD

ROWS, COLUMNS = 96, 80
FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One file a dtype, of every magnitude that the dtype has, infinities and values below the normal ones included."""
    folder = tmp_path_factory.mktemp("files")
    generator = torch.Generator().manual_seed(0)
    for dtype in FLOATS:
        size = ROWS * COLUMNS * dtype.itemsize
        noise = torch.randint(0, 256, (size,), dtype=torch.uint8, generator=generator).view(dtype)
        weight = torch.where(noise.isnan(), torch.zeros_like(noise), noise).reshape(ROWS, COLUMNS)
        whole = torch.arange(ROWS * COLUMNS).reshape(ROWS, COLUMNS)
        save_file({"weight": weight, "bias": weight[0].clone(), "whole": whole}, folder / f"{dtype}.safetensors")
    return folder


def stored(folder: Path, dtype: torch.dtype = torch.float32, name: str = "weight") -> torch.Tensor:
    """A tensor of that dtype as a view of a mapped file."""
    found: torch.Tensor = load_file(folder / f"{dtype}.safetensors")[name]
    return found


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors are equal bit for bit, and lie in memory in the same way."""
    if (one.dtype, one.shape, one.stride()) != (other.dtype, other.shape, other.stride()):
        return False
    return torch.equal(one.reshape(-1).view(torch.uint8), other.reshape(-1).view(torch.uint8))


@pytest.mark.parametrize("asked", FLOATS)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "part", [lambda whole: whole, torch.t, lambda whole: whole[7:], lambda whole: whole[None, 60:].mT]
)
def test_a_settled_conversion_has_the_bits_of_an_ordinary_one(
    folder: Path, dtype: torch.dtype, asked: torch.dtype, part: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    source = part(stored(folder, dtype))
    expected = source.to(asked)
    with deferred_conversions() as deferred:
        weight = source.to(asked)
    assert deferred.pending_bytes == (expected.nbytes if dtype != asked else 0)
    deferred.settle(weight.untyped_storage())
    assert deferred.pending_bytes == 0
    assert same(weight, expected)


def test_a_promise_says_what_fills_its_storage_in_order(folder: Path) -> None:
    source = stored(folder)
    with deferred_conversions() as deferred:
        weight = torch.nn.Parameter(source.t().to(torch.bfloat16))
    found = deferred.source_of(weight.untyped_storage())
    assert found is not None
    assert found.data_ptr() == source.data_ptr()
    assert found.shape == (weight.numel(),)
    filled = torch.empty(0, dtype=torch.bfloat16).set_(found.to(torch.bfloat16).untyped_storage())
    assert same(filled.as_strided(weight.shape, weight.stride()), source.t().to(torch.bfloat16))
    deferred.settle_all()
    assert deferred.source_of(weight.untyped_storage()) is None


READS: dict[str, Callable[[torch.Tensor], Any]] = {
    "arithmetic": lambda weight: weight + 1,
    "reduction": lambda weight: weight.isfinite().sum(),
    "one element": lambda weight: torch.tensor(weight[3, 4].item()),
    "fusing": lambda weight: torch.cat([weight, weight]),
    "stacking views": lambda weight: torch.stack([weight[0], weight[1]]),
    "a reshape that copies": lambda weight: weight.t().reshape(-1),
    "another dtype": lambda weight: weight.to(torch.float64),
    "the same bytes as another dtype": lambda weight: weight.view(torch.int16),
    "a copy": lambda weight: weight.clone(),
    "copied into another": lambda weight: torch.zeros(ROWS, COLUMNS).copy_(weight),
    "a deep copy": copy.deepcopy,
    "numpy": lambda weight: torch.from_numpy(weight.numpy().copy()),
    "numpy's own way": lambda weight: torch.from_numpy(np.asarray(weight).copy()),
    "a list": lambda weight: torch.tensor(weight.tolist()),
    "its text": lambda weight: torch.tensor([ord(letter) for letter in repr(weight.detach())]),
    "its storage's bytes": lambda weight: torch.tensor(weight.untyped_storage().tolist()[:64]),
    "written in place": lambda weight: weight.detach().mul_(2),
    "written through a view": lambda weight: weight.detach()[1:3].zero_()._base,
    "in inference mode": torch.inference_mode()(lambda weight: weight.t().reshape(-1)),
}


@pytest.mark.parametrize("way", READS)
def test_what_reads_or_writes_it_while_loading_gets_its_values(folder: Path, way: str) -> None:
    source, read = stored(folder), READS[way]
    expected, first = source.to(torch.float16), source.to(torch.float16)
    answer = read(expected)
    with deferred_conversions() as deferred:
        weight = source.to(torch.float16)
        assert deferred.source_of(weight.untyped_storage()) is not None
        assert same(read(weight), answer)
        deferred.settle_all()
    assert same(weight, expected), "and what was written stays, where something was"
    assert same(source.to(torch.float16), first)


def test_bytes_seen_as_another_dtype_are_there(folder: Path) -> None:
    """Whoever asks what fills a storage takes its dtype from the tensor at hand."""
    with deferred_conversions() as deferred:
        seen = stored(folder).to(torch.bfloat16).view(torch.uint8)
    assert deferred.source_of(seen.untyped_storage()) is None
    assert torch.equal(seen, stored(folder).to(torch.bfloat16).view(torch.uint8))


def test_an_out_argument_is_written(folder: Path) -> None:
    with deferred_conversions() as deferred:
        weight = stored(folder).to(torch.bfloat16)
        torch.add(torch.ones(ROWS, COLUMNS), 1, out=weight)
        deferred.settle_all()
    assert bool((weight == 2).all())


@pytest.mark.parametrize(
    "look",
    [
        lambda weight: torch.nn.Parameter(weight, requires_grad=False),
        lambda weight: weight.t()[2:].unsqueeze(0).expand(3, -1, -1),
        lambda weight: weight.split(32)[1],
        lambda weight: weight.detach().view(-1).data,
        lambda weight: weight.contiguous().to("cpu").to(torch.bfloat16),
        lambda weight: (weight.shape, weight.stride(), weight.nbytes, weight.is_contiguous(), weight.data_ptr()),
    ],
)
def test_looking_settles_nothing(folder: Path, look: Callable[[torch.Tensor], Any]) -> None:
    with deferred_conversions() as deferred:
        weight = stored(folder).to(torch.bfloat16)
        seen = look(weight)
        holder = torch.nn.Parameter(torch.zeros(2))
        holder.data = weight
    assert deferred.pending_bytes == weight.nbytes
    del seen, weight
    assert deferred.source_of(holder.untyped_storage()) is not None


@pytest.mark.parametrize(
    "make",
    [
        lambda folder: stored(folder, name="bias"),
        lambda folder: stored(folder, name="whole"),
        lambda folder: stored(folder).clone(),
        lambda folder: stored(folder)[:, :40],
        lambda folder: stored(folder)[:1].expand(ROWS, COLUMNS),
        lambda folder: stored(folder, torch.bfloat16),
        lambda folder: torch.empty(ROWS, COLUMNS, device="meta"),
    ],
    ids=["below a page", "integers", "no file", "gaps", "repeats", "as asked", "no memory"],
)
def test_other_conversions_are_made_at_once(folder: Path, make: Callable[[Path], torch.Tensor]) -> None:
    source = make(folder)
    expected = source.to(torch.bfloat16)
    with deferred_conversions() as deferred:
        weight = source.to(torch.bfloat16)
    assert deferred.pending_bytes == 0
    assert source.is_meta or same(weight, expected)


def test_a_change_of_the_file_s_tensor_comes_too_late_for_what_was_converted_before(folder: Path) -> None:
    source = stored(folder)
    expected = source.to(torch.bfloat16)
    with deferred_conversions() as deferred:
        weight, other = source.to(torch.bfloat16), stored(folder, torch.float16).to(torch.bfloat16)
        source[0].zero_()
        assert deferred.pending_bytes == other.nbytes, "only what it feeds is settled"
    assert same(weight, expected)


def test_settling_twice_overwrites_nothing(folder: Path) -> None:
    with deferred_conversions() as deferred:
        source = stored(folder)
        file = weakref.ref(source.untyped_storage())
        weight = source.to(torch.bfloat16)
        del source
    deferred.settle(weight.untyped_storage())
    assert file() is None, "it needs the file no more"
    weight.zero_()
    deferred.settle(weight.untyped_storage())
    deferred.settle_all()
    assert not weight.any()


def test_a_promise_dies_with_its_storage_and_lets_go_of_the_file(folder: Path) -> None:
    source = stored(folder)
    file = weakref.ref(source.untyped_storage())
    with deferred_conversions() as deferred:
        weights = [source.to(torch.bfloat16) for _ in range(3)]
    del source
    weights[0].data = torch.zeros(1)
    assert deferred.pending_bytes == 2 * weights[1].nbytes
    assert file() is not None
    weights.clear()
    assert deferred.pending_bytes == 0
    assert file() is None
    later = [torch.zeros(ROWS, COLUMNS, dtype=torch.bfloat16) for _ in range(64)]
    assert all(deferred.source_of(tensor.untyped_storage()) is None for tensor in later)


def test_only_the_thread_within_is_watched_and_only_within(folder: Path) -> None:
    made: list[torch.Tensor] = []

    def load() -> None:
        made.append(stored(folder).to(torch.bfloat16))

    with deferred_conversions() as deferred:
        thread = threading.Thread(target=load)
        thread.start()
        thread.join()
    load()
    assert deferred.pending_bytes == 0
    assert same(made[0], stored(folder).to(torch.bfloat16))
    assert same(made[1], made[0])


@pytest.mark.parametrize("before", [None, "0"])
def test_the_library_s_threads_are_switched_off_within_and_back_after(
    monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    monkeypatch.delenv(ONE_THREAD, raising=False)
    if before is not None:
        monkeypatch.setenv(ONE_THREAD, before)
    with pytest.raises(KeyError, match="broken off"), deferred_conversions():
        assert os.environ[ONE_THREAD] == "1"
        raise KeyError("broken off")
    assert os.environ.get(ONE_THREAD) == before
