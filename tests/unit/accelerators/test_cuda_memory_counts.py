"""Peaks of activations are told apart from weights by torch's own counters, as its allocator rounds them."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch

from stowplan_agent.accelerators.cuda_memory import CudaMemory
from stowplan_agent.accelerators.interface import MemoryCounters

ANSWERS = [  # current, peak since the last reset, reserved at its highest: each time the allocator is asked
    (1000, 5000, 6000),  # before weights are taken: activations had come to 5000
    (1512, 1512, 6000),  # after: 100 bytes have become 512
    (1512, 4512, 7000),  # a request of 4000
    (1512, 9000, 9500),  # a larger one, 8488 beside the weights
    (1000, 9000, 9500),  # after they were given back
    (1000, 1000, 9500),
]


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[CudaMemory]:
    answers = iter(ANSWERS)

    def nested(_: torch.device) -> dict[str, dict[str, dict[str, int]]]:
        current, peak, reserved = next(answers)
        return {
            "allocated_bytes": {"all": {"current": current, "peak": peak}},
            "reserved_bytes": {"all": {"peak": reserved}},
        }

    for name, answer in {
        "get_device_properties": lambda _: SimpleNamespace(total_memory=1 << 20),
        "mem_get_info": lambda _: (1 << 20, 1 << 20),
        "memory_reserved": lambda _: 0,
        "reset_peak_memory_stats": lambda _: None,
        "memory_stats_as_nested_dict": nested,
    }.items():
        monkeypatch.setattr(torch.cuda, name, answer)
    yield CudaMemory(torch.device("cpu"), ceiling_bytes=None)
    assert next(answers, None) is None, "the allocator is asked as often as it must be"


def test_a_peak_belongs_to_what_was_held_when_it_was_reached(memory: CudaMemory) -> None:
    buffer = memory.allocate(100)
    assert memory.counters() == MemoryCounters(1512, 100, peak=5000, activation_peak=5000, reserved_peak=7000)
    memory.free(buffer)
    assert buffer.nbytes == 100 and buffer.untyped_storage().nbytes() == 0
    assert memory.counters() == MemoryCounters(1000, 0, peak=9000, activation_peak=8488, reserved_peak=9500)
