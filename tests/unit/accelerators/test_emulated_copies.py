"""The emulated link: asynchronous in truth, in order, timed on the virtual clock, and each failure its own event's."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch

from stowplan_agent.accelerators.emulated import EmulatedAccelerator, EmulatedCard

NBYTES = 4096


class Valve:
    """Called on the copy thread: lets copies through only while open; fails those numbered in ``failing``."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.failing: set[int] = set()
        self.started = 0

    def __call__(self) -> None:
        assert self.open.wait(timeout=60)
        self.started += 1
        if self.started in self.failing:
            raise OSError(f"link down at copy {self.started}")


@pytest.fixture
def valve() -> Valve:
    return Valve()


@pytest.fixture
def slow(valve: Valve) -> Iterator[EmulatedAccelerator]:
    card = EmulatedCard(1 << 20, 0, pinned_rate=4e6, pageable_rate=1e6, latency=1e-3, contention=1.0)
    accelerator = EmulatedAccelerator(card, delay=valve)
    yield accelerator
    valve.open.set()
    accelerator.close()


def test_a_copy_is_queued_and_done_later(slow: EmulatedAccelerator, valve: Valve) -> None:
    buffer = slow.allocate(NBYTES)
    source = torch.full((NBYTES,), 7, dtype=torch.uint8)
    event = slow.copy(buffer, source, pinned=True, after=slow.record())
    assert not event.done.is_set() and (buffer != 7).all()
    valve.open.set()
    slow.wait(event)
    assert torch.equal(buffer, source)


def test_copies_run_in_the_order_of_issue(slow: EmulatedAccelerator, valve: Valve) -> None:
    buffer = slow.allocate(NBYTES)
    events = [
        slow.copy(buffer, torch.full((NBYTES,), number, dtype=torch.uint8), pinned=True, after=None)
        for number in range(20)
    ]
    valve.open.set()
    slow.wait(events[-1])
    assert (buffer == 19).all()
    assert [event.moment for event in events] == sorted(event.moment for event in events)


@pytest.mark.parametrize(("pinned", "rate"), [(True, 4e6), (False, 1e6)])
def test_seconds_are_latency_and_bytes_over_rate(
    pinned: bool, rate: float, slow: EmulatedAccelerator, valve: Valve
) -> None:
    valve.open.set()
    start = slow.record()
    end = slow.copy(slow.allocate(NBYTES), torch.zeros(NBYTES, dtype=torch.uint8), pinned=pinned, after=start)
    slow.wait(end)
    assert slow.elapsed(start, slow.record()) == pytest.approx(1e-3 + NBYTES / rate)
    assert slow.wait_seconds() == pytest.approx(1e-3 + NBYTES / rate)


def test_a_failed_copy_fails_whoever_waits_for_it_and_nobody_else(slow: EmulatedAccelerator, valve: Valve) -> None:
    valve.failing = {2}
    valve.open.set()
    source = torch.zeros(NBYTES, dtype=torch.uint8)
    first, second, third = (slow.copy(slow.allocate(NBYTES), source, pinned=True, after=None) for _ in range(3))
    slow.wait(first)
    slow.wait(third)
    for _ in range(2):  # the bytes never came: waiting again does not make them come
        with pytest.raises(OSError, match="link down at copy 2"):
            slow.wait(second)


def test_synchronize_waits_for_every_queued_copy(slow: EmulatedAccelerator, valve: Valve) -> None:
    source = torch.zeros(NBYTES, dtype=torch.uint8)
    events = [slow.copy(slow.allocate(NBYTES), source, pinned=True, after=None) for _ in range(5)]
    valve.open.set()
    slow.synchronize()
    assert all(event.done.is_set() for event in events)


def test_read_back_brings_device_bytes_to_the_host(slow: EmulatedAccelerator, valve: Valve) -> None:
    valve.open.set()
    buffer = slow.allocate(NBYTES)
    buffer.fill_(3)
    host = torch.zeros(NBYTES, dtype=torch.uint8)
    slow.read_back(host, buffer)
    assert torch.equal(host, buffer)


def test_a_closed_link_refuses_copies_instead_of_waiting_for_ever(slow: EmulatedAccelerator, valve: Valve) -> None:
    valve.open.set()
    slow.close()
    with pytest.raises(RuntimeError, match="is closed"):
        slow.copy(slow.allocate(8), torch.zeros(8, dtype=torch.uint8), pinned=True, after=None)


def test_refused_pins_change_nothing(slow: EmulatedAccelerator) -> None:
    host = torch.zeros(NBYTES, dtype=torch.uint8)
    assert slow.pin(host)
    slow.unpin(host)
    slow.refused_pins = True
    assert not slow.pin(host)
