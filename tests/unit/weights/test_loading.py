"""From where a library left the weights to where the first entry says: each byte once, all or nothing, in parallel."""

from __future__ import annotations

import gc
import mmap
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import nn

from stowplan_agent.accelerators.emulated import EmulatedAccelerator, EmulatedCard
from stowplan_agent.weights import WeightsEngine
from stowplan_agent.weights.host import take_arena, whole_pages
from stowplan_agent.weights.layout import Place, blocks, lay_out
from stowplan_agent.weights.ledger import Ledger, Tier
from stowplan_agent.weights.loading import filling
from stowplan_agent.weights.loading.filling import fill_all
from stowplan_agent.weights.loading.source import Origin, UnitSource
from stowplan_api.placement import ComponentPlacement, Placement
from unit.weights.stacks import Stack, balances, check, emulated_card, layerwise, offload, resident

MODULE = nn.Module()


def blocks_of(tensors: list[torch.Tensor]) -> list[Any]:
    return blocks([Place(MODULE, str(index), tensor, is_buffer=False) for index, tensor in enumerate(tensors)])


def pieces(nbytes: int, size: int) -> list[tuple[int, int]]:
    return [(start, min(size, nbytes - start)) for start in range(0, nbytes, size)]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 700), st.booleans()), min_size=1, max_size=6), st.integers(1, 9))
def test_a_unit_read_in_pieces_of_any_size_is_the_unit(sizes: list[tuple[int, bool]], step: int) -> None:
    """Bytes as they are, and bytes that are converted on the way, in any order of pieces."""
    wide = [torch.rand(size) for size, _ in sizes]
    tensors = [
        torch.empty(size, dtype=torch.bfloat16) if late else values
        for values, (size, late) in zip(wide, sizes, strict=True)
    ]
    late = {
        tensor.untyped_storage()._cdata: values
        for tensor, values in zip(tensors, wide, strict=True)
        if tensor.dtype is torch.bfloat16
    }
    found = blocks_of(tensors)
    source, layout = UnitSource(found, Origin(lambda storage: late.get(storage._cdata))), lay_out(found)
    buffer = torch.zeros(source.nbytes, dtype=torch.uint8)
    for start, size in reversed(pieces(source.nbytes, 256 * step)):
        source.read(start, buffer[start : start + size])
    for view, values, tensor in zip(layout.views, wide, tensors, strict=True):
        assert torch.equal(view.of(buffer), values.to(tensor.dtype))


@pytest.mark.parametrize("cores", [1, 2, 7])
def test_every_piece_is_read_once_and_what_follows_comes_one_at_a_time(
    cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filling, "reading_threads", lambda: cores)
    monkeypatch.setattr(filling, "PIECE", 1000)
    seen: list[tuple[int, int, int]] = []
    busy, order = threading.Lock(), []

    class Source:
        def __init__(self, index: int, nbytes: int) -> None:
            self.index, self.nbytes = index, nbytes

        def read(self, start: int, target: torch.Tensor) -> None:
            seen.append((self.index, start, target.nbytes))
            target.fill_(self.index + 1)

    targets = [torch.zeros(size, dtype=torch.uint8) for size in (2500, 1, 1000, 4001)]

    def filled(index: int) -> None:
        assert busy.acquire(blocking=False)
        assert bool((targets[index] == index + 1).all())
        order.append(index)
        busy.release()

    fill_all([(Source(index, target.nbytes), target) for index, target in enumerate(targets)], filled)
    assert sorted(order) == [0, 1, 2, 3]
    assert sorted(seen) == [
        (index, *piece) for index, target in enumerate(targets) for piece in pieces(target.nbytes, 1000)
    ]


def test_an_arena_is_whole_pages_private_and_goes_back_buffer_by_buffer() -> None:
    with emulated_card() as card:
        ledger = Ledger()
        sizes = [1, 4096, 5000, 3 << 20]
        before = anonymous()
        buffers = take_arena("part", sizes, card, ledger)
        assert [buffer.tensor.nbytes for buffer in buffers] == sizes
        assert all(buffer.tensor.data_ptr() % mmap.PAGESIZE == 0 for buffer in buffers)
        assert ledger.held("part", Tier.PAGEABLE) == sum(sizes)
        for buffer in buffers:
            assert not buffer.tensor.any()
            buffer.tensor.fill_(7)
        assert anonymous() - before >= sum(sizes)
        view = buffers[3].tensor[:10]
        for buffer in buffers:
            buffer.drop()
        assert ledger.held("part", Tier.PAGEABLE) == 0
        assert view.tolist() == [7] * 10, "memory that is looked at stays"
        del view, buffer, buffers
        gc.collect()
        assert anonymous() - before < whole_pages(sizes[3])


def anonymous() -> int:
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Anonymous:"):
            return int(line.split()[1]) << 10
    raise AssertionError("the kernel does not say")


ENTRIES = {
    "resident": resident(),
    "offload": offload(pinned=10_000),
    "streamed": layerwise({"first": 0, "second": 0}, loose="Forward", pinned=3),
    "half": layerwise({"first": 2, "second": 2}, slots=3, pinned=1),
    "forward": layerwise({"first": 2, "second": 3}, lifetime="Forward", policy="Leading", pinned=4),
}


def seeded(entry: ComponentPlacement) -> Any:
    return lambda _: Placement(components=(entry,))


@pytest.mark.parametrize("name", ENTRIES)
def test_the_first_entry_takes_what_it_says_and_nothing_else(name: str) -> None:
    with emulated_card() as card, torch.no_grad():
        stack, x = Stack(), torch.rand(2, 16)
        expected, identities = stack(x), [id(parameter) for parameter in stack.parameters()]
        engine = WeightsEngine(card)
        engine.adopt({"part": stack}, seeded(ENTRIES[name]))
        loaded = balances(engine.ledger)
        check(engine)
        with engine.request():
            assert torch.equal(stack(x), expected)
        assert [id(parameter) for parameter in stack.parameters()] == identities
        if name in {"resident", "half"}:
            layers = [engine._components["part"].groups[group] for group in ("first", "second")]
            assert all((unit.host is None) is (unit.device is not None) for units in layers for unit in units)
        # Going to the same entry from elsewhere ends in the same bytes.
        engine.place(offload())
        engine.place(ENTRIES[name])
        engine.commit()
        assert balances(engine.ledger) == loaded
        engine.close()


class Faulty(EmulatedAccelerator):
    """A card whose ``fail_at``-th driver call raises."""

    calls = 0
    fail_at = 0

    def allocate(self, nbytes: int) -> torch.Tensor:
        self._count()
        return super().allocate(nbytes)

    def fill(self, *args: Any, **kwargs: Any) -> Any:
        self._count()
        return super().fill(*args, **kwargs)

    def pin(self, buffer: torch.Tensor) -> bool:
        self._count()
        return super().pin(buffer)

    def _count(self) -> None:
        self.calls += 1
        if self.calls == self.fail_at:
            raise torch.OutOfMemoryError("out of memory")


@pytest.mark.parametrize("name", ["resident", "streamed", "half", "forward"])
def test_a_load_that_fails_anywhere_leaves_the_model_as_the_library_made_it(name: str) -> None:
    card, stack, x = Faulty(EmulatedCard(1 << 30)), Stack(), torch.rand(2, 16)
    with torch.no_grad():
        expected = stack(x)
        storages = [parameter.data_ptr() for parameter in stack.parameters()]
        failures = 0
        while True:
            card.calls, card.fail_at = 0, failures + 1
            engine = WeightsEngine(card)
            try:
                engine.adopt({"part": stack}, seeded(ENTRIES[name]))
            except torch.OutOfMemoryError:
                failures += 1
                assert set(balances(engine.ledger).values()) == {0}
                assert card.counters().weights == 0
                assert [parameter.data_ptr() for parameter in stack.parameters()] == storages
                assert torch.equal(stack(x), expected)
                assert engine.describe() == ()
            else:
                break
        card.fail_at = 0
        assert failures > 1
        with engine.request():
            assert torch.equal(stack(x), expected)
        engine.close()
    card.close()


def test_files_are_let_go_once_their_weights_are_placed(tmp_path: Path) -> None:
    def mapped() -> bool:
        return "weights.safetensors" in Path("/proc/self/maps").read_text()

    with emulated_card() as card, torch.no_grad():
        torch.manual_seed(1)
        model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(4)))
        save_file(model.state_dict(), tmp_path / "weights.safetensors")
        for key, value in load_file(tmp_path / "weights.safetensors").items():
            layer, name = key.split(".")
            model[int(layer)]._parameters[name].data = value  # type: ignore[union-attr]
        del value
        x = torch.rand(2, 64)
        expected = model(x)
        assert mapped()
        engine = WeightsEngine(card)
        engine.adopt({"part": model})
        gc.collect()
        assert not mapped()
        with engine.request():
            assert torch.equal(model(x), expected)
        engine.close()
