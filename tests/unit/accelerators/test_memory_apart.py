"""Weights in memory that the driver gave beside torch's allocator: counted as weights, and under the ceiling."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from stowplan_agent.accelerators.cuda_memory import CudaMemory
from stowplan_agent.accelerators.interface import MemoryCounters

MIB = 1 << 20
TOTAL, CONTEXT, CEILING = 1000 * MIB, 10 * MIB, 400 * MIB


class Card:
    """What torch and the driver say of it: ``reserved`` by the allocator, ``driver`` beside it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reserved, self.driver, self.share = 100 * MIB, 0, 0.0
        for name, answer in {
            "get_device_properties": lambda _: SimpleNamespace(total_memory=TOTAL),
            "mem_get_info": lambda _: (TOTAL - CONTEXT - self.reserved - self.driver, TOTAL),
            "memory_reserved": lambda _: self.reserved,
            "reset_peak_memory_stats": lambda _: None,
            "set_per_process_memory_fraction": lambda share, _: setattr(self, "share", share),
            "memory_stats_as_nested_dict": lambda _: {
                "allocated_bytes": {"all": {"current": 60 * MIB, "peak": 80 * MIB}},
                "reserved_bytes": {"all": {"peak": self.reserved}},
            },
        }.items():
            monkeypatch.setattr(torch.cuda, name, answer)

    @property
    def allocators_part(self) -> int:
        return round(self.share * TOTAL)


def test_what_the_driver_gave_is_weights_and_not_outside_and_comes_off_the_allocators_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    card = Card(monkeypatch)
    memory = CudaMemory(torch.device("cpu"), ceiling_bytes=CEILING)
    assert card.allocators_part == CEILING - CONTEXT
    card.driver = 50 * MIB
    memory.hold_apart(50 * MIB - 7, 50 * MIB)
    assert memory.outside_bytes() == CONTEXT
    assert card.allocators_part == CEILING - CONTEXT - 50 * MIB
    assert memory.counters() == MemoryCounters(
        allocated=110 * MIB,
        weights=50 * MIB - 7,
        peak=130 * MIB,
        activation_peak=80 * MIB,
        reserved_peak=150 * MIB,
    )
    card.driver = 0
    memory.hold_apart(-(50 * MIB - 7), -50 * MIB)
    assert (memory.counters().weights, card.allocators_part) == (0, CEILING - CONTEXT)


def test_the_ceiling_refuses_what_it_has_no_room_for_and_nothing_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    card = Card(monkeypatch)
    memory = CudaMemory(torch.device("cpu"), ceiling_bytes=CEILING)
    before = memory.counters()
    room = CEILING - CONTEXT - card.reserved
    with pytest.raises(torch.OutOfMemoryError, match=f"more than the {room} that are left"):
        memory.check_apart(room + 1)
    assert memory.counters() == before
    memory.check_apart(room)
    card.driver = room
    memory.hold_apart(room, room)
    with pytest.raises(torch.OutOfMemoryError, match="more than the 0 that are left"):
        memory.check_apart(1)
