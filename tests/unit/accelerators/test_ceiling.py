"""H12: a ceiling never lifts what may be used above what is really free, on any accelerator or in a plan."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from stowplan_agent.accelerators import Accelerator, open_accelerator
from stowplan_agent.accelerators.cuda_memory import (
    ALLOCATOR_VARIABLES,
    OWN_GROWTH,
    CudaMemory,
    ceiling_share,
    without_fragments,
)
from stowplan_agent.accelerators.emulated import EmulatedAccelerator, EmulatedCard
from stowplan_agent.planning.limits import weight_room
from unit.planning.examples import GIB, component, interval, made

MIB = 1 << 20
DEVICE = torch.device("cuda", 0)


@pytest.mark.parametrize(
    ("total", "ceiling", "outside", "room"),
    [
        (24, 24, 2, 22),
        (24, 80, 2, 22),
        (24, 20, 0, 20),
        (24, 20, 2, 18),  # the ceiling is for all that the process has, and what lies outside may be its own context
        (24, 1, 2, 0),
    ],
)
def test_the_allocators_share_is_what_is_left_below_ceiling_and_card(
    total: int, ceiling: int, outside: int, room: int
) -> None:
    assert ceiling_share(total, ceiling, outside) * total == pytest.approx(room)


@pytest.mark.parametrize("variable", ALLOCATOR_VARIABLES)
@pytest.mark.parametrize(
    ("given", "settings"),
    [
        ("", "expandable_segments:True"),
        ("max_split_size_mb:512", "max_split_size_mb:512,expandable_segments:True"),
        ("expandable_segments:False", None),
        ("backend:cudaMallocAsync", None),
    ],
)
def test_free_memory_stays_in_one_piece_unless_the_user_decides(
    variable: str, given: str, settings: str | None
) -> None:
    assert without_fragments({}) == "expandable_segments:True"
    assert without_fragments({variable: given}) == settings


class Driver:
    """torch.cuda as `CudaMemory` asks it, for a card of 24 GiB on which another process holds 2."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.share = 1.0
        self.free = 21 * GIB
        answers = {
            "get_device_properties": lambda _: SimpleNamespace(total_memory=24 * GIB),
            "mem_get_info": lambda _: (self.free, 24 * GIB),
            "memory_reserved": lambda _: GIB,
            "memory_stats_as_nested_dict": lambda _: {
                name: {"all": {"current": GIB, "peak": GIB}} for name in ("allocated_bytes", "reserved_bytes")
            },
            "reset_peak_memory_stats": lambda _: None,
            "set_per_process_memory_fraction": self.cap,
        }
        for name, answer in answers.items():
            monkeypatch.setattr(torch.cuda, name, answer)

    def cap(self, share: float, device: torch.device) -> None:
        self.share = share


@pytest.mark.parametrize(("ceiling", "capacity", "allowed"), [(None, 24, 24), (24, 24, 22), (80, 24, 22), (20, 20, 18)])
def test_a_gpu_is_capped_below_what_another_process_holds(
    ceiling: int | None, capacity: int, allowed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver(monkeypatch)
    memory = CudaMemory(DEVICE, ceiling_bytes=None if ceiling is None else ceiling * GIB)
    assert memory.capacity_bytes == capacity * GIB
    assert memory.capacity_bytes - memory.outside_bytes() == (capacity - 2) * GIB
    assert driver.share * 24 == pytest.approx(allowed)


@pytest.mark.parametrize(("taken", "counted"), [(0, 0), (200 * MIB, 200 * MIB), (10 * GIB, OWN_GROWTH)])
def test_the_ceiling_counts_what_libraries_have_taken_since_and_no_other_process(
    taken: int, counted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second pod that starts on the card takes nothing from the ceiling of the first."""
    driver = Driver(monkeypatch)
    memory = CudaMemory(DEVICE, ceiling_bytes=20 * GIB)
    driver.free -= taken
    memory.reset_peaks()
    assert driver.share * 24 * GIB == pytest.approx(18 * GIB - counted)


def room_of(accelerator: Accelerator) -> int:
    return accelerator.capacity_bytes() - accelerator.outside_bytes()


def test_an_emulated_card_gives_out_no_byte_that_another_process_holds() -> None:
    accelerator = EmulatedAccelerator(EmulatedCard(24 * MIB, outside_bytes=2 * MIB))
    try:
        assert room_of(accelerator) == 22 * MIB
        held = accelerator.allocate(22 * MIB)
        with pytest.raises(torch.OutOfMemoryError):
            accelerator.allocate(1)
        accelerator.free(held)
    finally:
        accelerator.close()


def test_a_ceiling_is_an_emulated_cards_capacity_with_its_context_inside() -> None:
    accelerator = open_accelerator("emulated", ceiling_bytes=24 * MIB)
    try:
        assert room_of(accelerator) < 24 * MIB == accelerator.capacity_bytes()
        with pytest.raises(torch.OutOfMemoryError):
            accelerator.allocate(room_of(accelerator) + 1)
    finally:
        accelerator.close()


def test_a_plan_has_the_same_room_as_the_allocator() -> None:
    record = made([component("denoiser", 1)], [interval("denoiser", 1, activation=3.0)], card=24, reserve=1)
    ranks = tuple(rank.model_copy(update={"outside_bytes": 2 * GIB}) for rank in record.ranks)
    record = record.model_copy(update={"ranks": ranks})
    assert weight_room(record) == ((22 * GIB - GIB - 3 * GIB,),)
