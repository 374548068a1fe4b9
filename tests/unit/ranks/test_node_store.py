"""The host store of several ranks: one copy, filled by all, counted once, read-only, and gone with the last rank."""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from circle_of_threads import circles, together
from safetensors.torch import load_file, save_file

from stowplan_agent.accelerators.emulated import EmulatedAccelerator, EmulatedCard
from stowplan_agent.ranks.errors import RanksError
from stowplan_agent.ranks.parts import Part
from stowplan_agent.ranks.shares import share
from stowplan_agent.ranks.store import NodeStore, SharedBuffer
from stowplan_agent.ranks.store.contents import digest
from stowplan_agent.ranks.store.mapping import make_file, map_file, seal
from stowplan_agent.weights.host import HUGE_PAGE, HostBuffer
from stowplan_agent.weights.layout import Place, blocks
from stowplan_agent.weights.ledger import Ledger, Tier
from stowplan_agent.weights.loading.files import MappedFiles
from stowplan_agent.weights.loading.source import Origin, UnitSource

SIZES = [1000, 70_000, 5 << 20]


class Numbers:
    """A source whose byte at each place is known, and that counts what is read of it."""

    def __init__(self, nbytes: int, seed: int = 0) -> None:
        self.nbytes = nbytes
        self.read_bytes = 0
        self.all = (torch.arange(nbytes) * 31 + seed).to(torch.uint8)

    def read(self, start: int, target: torch.Tensor) -> None:
        target.copy_(self.all[start : start + target.nbytes])
        self.read_bytes += target.nbytes


class Broken(Numbers):
    def read(self, start: int, target: torch.Tensor) -> None:
        raise OSError("layer.safetensors: the file ends before byte 12")


class Rank:
    def __init__(self, store: NodeStore, ledger: Ledger, accelerator: EmulatedAccelerator) -> None:
        self.store = store
        self.ledger = ledger
        self.accelerator = accelerator
        self.sources = [Numbers(nbytes, seed) for seed, nbytes in enumerate(SIZES)]
        self.buffers: Sequence[HostBuffer | SharedBuffer] = []

    def load(self, contents: Sequence[str] = ("a", "b", "c")) -> None:
        self.buffers = self.store.take("denoiser", SIZES, contents)
        self.store.fill(list(zip(self.sources, self.buffers, strict=True)))
        self.store.settle(self.buffers)


def crew(ranks: int, *, swaps: bool = True) -> list[Rank]:
    found = []
    for circle in circles(ranks):
        accelerator, ledger = EmulatedAccelerator(EmulatedCard(capacity_bytes=64 << 20)), Ledger()
        found.append(Rank(NodeStore(circle, accelerator, ledger, swaps=swaps), ledger, accelerator))
    return found


@pytest.mark.parametrize("ranks", [2, 4])
def test_all_ranks_see_bytes_of_which_each_has_read_its_share(ranks: int) -> None:
    members = crew(ranks)
    assert together(ranks, lambda rank: members[rank].load()) == [None] * ranks
    for rank, member in enumerate(members):
        for source, buffer in zip(member.sources, member.buffers, strict=True):
            assert torch.equal(buffer.tensor, source.all)
            assert source.read_bytes == share(source.nbytes, ranks, rank).nbytes


def test_pins_and_bytes_of_all_ranks_together_are_those_of_one_copy() -> None:
    members = crew(2)
    together(2, lambda rank: members[rank].load())
    assert sum(member.ledger.total(Tier.PAGEABLE) for member in members) == sum(SIZES)
    for member in members:
        for buffer in member.buffers:
            buffer.set_pinned(True)
            assert buffer.pinned
    assert sum(member.ledger.total(Tier.PINNED) for member in members) == sum(SIZES)
    assert sum(member.ledger.total(Tier.PAGEABLE) for member in members) == 0
    for member in members:
        for buffer in member.buffers:
            buffer.drop()
        assert member.ledger.total(Tier.PINNED) == member.ledger.total(Tier.PAGEABLE) == 0


def test_ranks_that_cannot_swap_lock_all_of_it_each_and_count_it_once() -> None:
    members = crew(2, swaps=False)
    together(2, lambda rank: members[rank].load())
    for member in members:
        for buffer, nbytes in zip(member.buffers, SIZES, strict=True):
            assert isinstance(buffer, SharedBuffer)
            assert buffer.locks.nbytes == nbytes
    assert sum(member.ledger.total(Tier.PAGEABLE) for member in members) == sum(SIZES)


@pytest.mark.parametrize(
    ("rank", "swaps", "locked"), [(0, True, [True, False]), (1, True, [False, True]), (1, False, [True])]
)
def test_runs_of_a_buffer_say_what_this_rank_has_locked(rank: int, swaps: bool, locked: list[bool]) -> None:
    members = crew(2, swaps=swaps)
    together(2, lambda one: members[one].load())
    buffer = members[rank].buffers[2]
    assert isinstance(buffer, SharedBuffer)
    assert [pinned for _, pinned in buffer.runs] == [False]
    buffer.set_pinned(True)
    assert [pinned for _, pinned in buffer.runs] == locked
    assert torch.equal(torch.cat([run for run, _ in buffer.runs]), members[rank].sources[2].all)
    accelerator = members[rank].accelerator
    device = accelerator.allocate(buffer.tensor.nbytes)
    accelerator.wait(buffer.copy_to(device, accelerator, accelerator.record()))
    assert torch.equal(device, members[rank].sources[2].all)


def test_what_lies_on_the_devices_is_read_back_once_between_all_ranks() -> None:
    members = crew(2)

    def read_back(rank: int) -> None:
        member = members[rank]
        member.buffers = member.store.take("denoiser", SIZES, ["a", "b", "c"])
        devices = []
        for source in member.sources:
            devices.append(member.accelerator.allocate(source.nbytes))
            own = share(source.nbytes, 2, rank)
            devices[-1][own.part] = source.all[own.part]  # of the rest nothing is read: the other rank has it
        member.store.read_back(list(zip(devices, member.buffers, strict=True)))

    assert together(2, read_back) == [None, None]
    for member in members:
        for source, buffer in zip(member.sources, member.buffers, strict=True):
            assert torch.equal(buffer.tensor, source.all)


def test_a_driver_that_refuses_leaves_it_pageable() -> None:
    members = crew(2)
    together(2, lambda rank: members[rank].load())
    members[1].accelerator.refused_pins = True
    members[1].buffers[0].set_pinned(True)
    assert not members[1].buffers[0].pinned
    assert members[1].ledger.total(Tier.PINNED) == 0


def test_weights_that_differ_are_each_ranks_own() -> None:
    """SandAI-org/MagiCompiler#64: the same name and shape, another shard."""
    members = crew(2)
    for rank, member in enumerate(members):
        member.sources[1] = Numbers(SIZES[1], seed=100 + rank)
    together(2, lambda rank: members[rank].load([digest(source) for source in members[rank].sources]))
    for member in members:
        assert [isinstance(buffer, SharedBuffer) for buffer in member.buffers] == [True, False, True]
        for source, buffer in zip(member.sources, member.buffers, strict=True):
            assert torch.equal(buffer.tensor, source.all)


@pytest.mark.parametrize("broken", [0, 1])
def test_a_rank_that_cannot_read_fails_all_with_its_reason(broken: int) -> None:
    members = crew(2)
    members[broken].sources[2] = Broken(SIZES[2])
    found = together(2, lambda rank: members[rank].load())
    assert isinstance(found[broken], OSError)
    assert str(found[1 - broken]) == (
        f"rank {broken} could not fill the host store: layer.safetensors: the file ends before byte 12"
    )


def test_ranks_that_ask_for_other_sizes_take_nothing() -> None:
    members = crew(2)
    found = together(2, lambda rank: members[rank].store.take("denoiser", [1000 + 4096 * rank], ["a"]))
    assert all(isinstance(error, RanksError) for error in found)
    assert str(found[0]) == "denoiser: rank 1 asks for 5096 bytes of host copies and rank 0 for 1000"
    assert all(member.ledger.total(Tier.PAGEABLE) == 0 for member in members)


def test_more_buffers_than_a_message_carries_come_in_several() -> None:
    members = crew(2)
    found = together(2, lambda rank: members[rank].store.take("vae", [4096] * 300, ["same"] * 300))
    assert all(isinstance(buffers, list) and len(buffers) == 300 for buffers in found)


def test_weights_go_from_a_checkpoints_file_to_their_share_of_the_copy(tmp_path: Path) -> None:
    """By the loader's own source of a layer: two tensors, aligned, of a safetensors file that is mapped."""
    tensors = {"weight": torch.randn(300, 70)}
    save_file(tensors, tmp_path / "layer.safetensors")
    members = crew(3)

    def load(rank: int) -> torch.Tensor:
        module = torch.nn.Linear(70, 300)
        module.weight.data = load_file(tmp_path / "layer.safetensors")["weight"]
        found = [Place(module, name, tensor, False) for name, tensor in module.named_parameters()]
        module.bias.data = torch.arange(300.0)
        source = UnitSource(blocks(found), Origin(files=MappedFiles()))
        (buffer,) = members[rank].store.take("denoiser", [source.nbytes], [digest(source)])
        members[rank].store.fill([(source, buffer)])
        members[rank].store.settle([buffer])
        return buffer.tensor.clone()

    found = together(3, load)
    assert all(isinstance(one, torch.Tensor) and torch.equal(one, found[0]) for one in found)
    assert isinstance(found[0], torch.Tensor)
    size = tensors["weight"].nbytes
    assert torch.equal(found[0][:size].view(torch.float32), tensors["weight"].flatten())
    start = -(-size // 256) * 256
    assert torch.equal(found[0][start : start + 1200].view(torch.float32), torch.arange(300.0))


def mapped() -> int:
    """Bytes of shared weights that this process maps, whole pages."""
    text = Path("/proc/self/maps").read_text()
    ranges = re.findall(r"^([0-9a-f]+)-([0-9a-f]+) .*memfd:stowplan-weights", text, re.MULTILINE)
    return sum(int(end, 16) - int(start, 16) for start, end in ranges)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_the_pages_go_with_the_last_view_of_the_last_rank_and_no_descriptor_stays() -> None:
    before = mapped()
    members = crew(2)
    open_before = descriptors()
    together(2, lambda rank: members[rank].load())
    assert descriptors() == open_before
    kept = members[0].buffers[2].tensor[:10]
    for member in members:
        for buffer in member.buffers:
            buffer.drop()
        member.buffers = []
    assert mapped() - before == -(-SIZES[2] // mmap.PAGESIZE) * mmap.PAGESIZE
    assert kept.tolist() == Numbers(SIZES[2], 2).all[:10].tolist()
    del kept
    assert mapped() == before


def rights(tensor: torch.Tensor) -> str:
    address = tensor.data_ptr()
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, end = (int(one, 16) for one in line.split()[0].split("-"))
        if start <= address < end:
            return line.split()[1]
    raise AssertionError("it is not mapped")


def test_what_is_settled_can_be_read_only_until_a_rewrite_says_so() -> None:
    members = crew(2)
    together(2, lambda rank: members[rank].load())
    buffer = members[1].buffers[2]
    assert isinstance(buffer, SharedBuffer)
    assert buffer.sealed
    assert rights(buffer.tensor) == "r--s"
    buffer.set_pinned(True)
    assert rights(buffer.tensor) == "r--s"
    with buffer.writable():
        buffer.tensor[7] = 99
    assert rights(buffer.tensor) == "r--s"
    assert int(members[0].buffers[2].tensor[7]) == 99


def test_a_sealed_file_is_not_mapped_for_writing_and_never_changes_its_size() -> None:
    descriptor = make_file(10_000)
    memory = map_file(descriptor, 10_000).memory
    seal(descriptor)
    memory[0] = 1  # a mapping from before keeps its rights
    with pytest.raises(PermissionError):
        mmap.mmap(descriptor, 4096)
    for size in (4096, 1 << 20):
        with pytest.raises(PermissionError):
            os.ftruncate(descriptor, size)
    os.close(descriptor)


def test_huge_pages_that_are_not_really_there_are_done_without(tmp_path: Path) -> None:
    pool = tmp_path / "free_hugepages"
    pool.write_text("1000000\n")
    descriptor = make_file(HUGE_PAGE, pool=pool)
    memory = map_file(descriptor, HUGE_PAGE).memory
    memory[:] = 3
    assert int(memory.sum()) == 3 * HUGE_PAGE
    os.close(descriptor)


def test_a_part_of_a_source_reads_from_where_it_begins_and_a_digest_tells_sources_apart() -> None:
    source = Numbers(4096)
    target = torch.empty(256, dtype=torch.uint8)
    Part(source, 512, 1024).read(256, target)
    assert torch.equal(target, source.all[768:1024])
    assert digest(source) == digest(Numbers(4096))
    assert len({digest(Numbers(4096, seed)) for seed in range(5)}) == 5
