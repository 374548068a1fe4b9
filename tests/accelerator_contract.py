"""What the engine may rely on, whichever accelerator it runs on: one set of tests, inherited by each accelerator's own.

A subclass gives the fixture ``accelerator`` (256 MiB of room, no other user) and says how its device is kept busy and
how its driver is made to refuse. Bytes are compared, never seconds.
"""

from __future__ import annotations

import gc
import mmap
import random
import threading
from dataclasses import dataclass, field

import pytest
import torch

from stowplan_agent.accelerators import Accelerator, Event

KIB, MIB = 1 << 10, 1 << 20
ROOM = 256 * MIB
SLACK = 2 * MIB
"""A caching allocator rounds: to 512 bytes, or to what it cannot split off a larger block."""
SIZES = (1, 255, 4096, 8 * MIB + 1)
WAYS = ("pinned", "pageable", "fill")


def pattern(nbytes: int, seed: int = 0) -> torch.Tensor:
    """Host bytes on pages of their own, in which a shifted or repeated part shows: the period is a prime."""
    period = (torch.arange(251) * (2 * seed + 1) + seed) % 251
    host = torch.frombuffer(mmap.mmap(-1, nbytes), dtype=torch.uint8)
    return host.copy_(period.to(torch.uint8).repeat(-(-nbytes // 251))[:nbytes])


@dataclass
class Numbers:
    """A source of bytes. It may be held, may fail from some byte on, and notes what was asked of it."""

    tensor: torch.Tensor
    failing: int | None = None
    go: threading.Event | None = None
    begun: threading.Event = field(default_factory=threading.Event)
    asked: list[tuple[int, int]] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        return self.tensor.nbytes

    def read(self, start: int, target: torch.Tensor) -> None:
        assert target.dtype == torch.uint8 and target.dim() == 1
        self.begun.set()
        if self.go is not None:
            assert self.go.wait(60)
        self.asked.append((start, target.nbytes))
        if self.failing is not None and start + target.nbytes > self.failing:
            raise OSError("the file ended early")
        target.copy_(self.tensor[start : start + target.nbytes])


def take(accelerator: Accelerator, way: str, buffer: torch.Tensor, host: torch.Tensor, after: Event | None) -> Event:
    """Queue the host bytes into the buffer in one of the three ways; ``pinned`` wants the bytes pinned."""
    if way == "fill":
        return accelerator.fill(buffer, Numbers(host), after=after)
    return accelerator.copy(buffer, host, pinned=way == "pinned", after=after)


def back(accelerator: Accelerator, buffer: torch.Tensor) -> torch.Tensor:
    host = torch.empty(buffer.nbytes, dtype=torch.uint8)
    accelerator.read_back(host, buffer)
    return host


class AcceleratorContract:
    def keep_busy(self, accelerator: Accelerator) -> None:
        """Give compute something that takes long; nothing where compute is synchronous."""

    def refused(self, accelerator: Accelerator, host: torch.Tensor) -> bool:
        """Whether `pin` refuses, with the driver made to; the driver is well again afterwards."""
        raise AssertionError("each accelerator says how")

    # Memory

    def test_allocate_and_free_are_counted_to_the_byte(self, accelerator: Accelerator) -> None:
        start = accelerator.counters()
        buffers = [accelerator.allocate(nbytes) for nbytes in SIZES]
        assert all(
            (buffer.dtype, buffer.dim(), buffer.nbytes) == (torch.uint8, 1, nbytes)
            for buffer, nbytes in zip(buffers, SIZES, strict=True)
        )
        assert all(buffer.device.type == accelerator.device.type for buffer in buffers)
        assert accelerator.counters().weights == start.weights + sum(SIZES)
        for buffer in buffers:
            accelerator.free(buffer)
        assert accelerator.counters().weights == start.weights
        assert accelerator.counters().allocated == start.allocated

    def test_beyond_the_ceiling_is_out_of_memory_and_takes_nothing(self, accelerator: Accelerator) -> None:
        held = accelerator.allocate(ROOM // 2)
        before = accelerator.counters()
        for _ in range(3):
            with pytest.raises(torch.OutOfMemoryError):
                accelerator.allocate(ROOM * 3 // 4)
        after = accelerator.counters()
        assert (after.weights, after.allocated) == (before.weights, before.allocated)
        second = accelerator.allocate(ROOM // 4)
        for buffer in (held, second):
            accelerator.free(buffer)

    def test_capacity_less_what_is_outside_is_what_can_be_had(self, accelerator: Accelerator) -> None:
        room = accelerator.capacity_bytes() - accelerator.outside_bytes() - accelerator.counters().allocated
        assert room > 0
        with pytest.raises(torch.OutOfMemoryError):
            accelerator.allocate(room + SLACK)
        accelerator.free(accelerator.allocate(room * 3 // 4))

    def test_peaks_see_activations_apart_from_weights(self, accelerator: Accelerator) -> None:
        gc.collect()
        accelerator.reset_peaks()
        start = accelerator.counters()
        with accelerator.running():
            first = torch.zeros(24 * MIB, dtype=torch.uint8, device=accelerator.device)
            del first
            weights = accelerator.allocate(64 * MIB)
            second = torch.zeros(8 * MIB, dtype=torch.uint8, device=accelerator.device)
            del second
        counters = accelerator.counters()
        assert 0 <= counters.activation_peak - start.activation_peak - 24 * MIB <= SLACK
        assert 0 <= counters.peak - start.peak - 72 * MIB <= SLACK
        assert counters.peak <= counters.reserved_peak
        accelerator.reset_peaks()
        now = accelerator.counters()
        assert now.peak == now.allocated and 0 <= now.activation_peak - start.activation_peak <= SLACK
        accelerator.free(weights)

    # Copies

    @pytest.mark.parametrize("nbytes", SIZES)
    @pytest.mark.parametrize("way", WAYS)
    def test_bytes_arrive_as_they_were(self, accelerator: Accelerator, way: str, nbytes: int) -> None:
        buffer, host = accelerator.allocate(nbytes + 3), pattern(nbytes)
        guard = accelerator.copy(buffer, torch.full((nbytes + 3,), 9, dtype=torch.uint8), pinned=False, after=None)
        pinned = way == "pinned" and accelerator.pin(host)
        assert pinned == (way == "pinned")
        accelerator.wait(take(accelerator, way, buffer[2 : nbytes + 2], host, guard))
        found = back(accelerator, buffer)
        assert torch.equal(found[2:-1], host)
        assert found[:2].tolist() == [9, 9] and found[-1] == 9, "bytes beside the destination have changed"
        accelerator.synchronize()
        if pinned:
            accelerator.unpin(host)
        accelerator.free(buffer)

    def test_a_source_is_read_once_and_completely(self, accelerator: Accelerator) -> None:
        source = Numbers(pattern(24 * MIB + 5))
        buffer = accelerator.allocate(source.nbytes)
        accelerator.wait(accelerator.fill(buffer, source, after=None))
        end = 0
        for start, nbytes in sorted(source.asked):
            assert start == end and nbytes > 0
            end += nbytes
        assert end == source.nbytes
        assert torch.equal(back(accelerator, buffer), source.tensor)
        accelerator.free(buffer)

    @pytest.mark.parametrize("way", WAYS)
    def test_another_length_is_refused_at_once(self, accelerator: Accelerator, way: str) -> None:
        buffer = accelerator.allocate(4096)
        for nbytes in (1, 4095, 4097):
            with pytest.raises(ValueError, match=f"source of {nbytes} bytes cannot fill a buffer of 4096"):
                take(accelerator, way, buffer, pattern(nbytes), None)
        accelerator.free(buffer)

    def test_copies_keep_the_order_of_issue(self, accelerator: Accelerator) -> None:
        nbytes = 12 * MIB
        buffer, hosts = accelerator.allocate(nbytes), [pattern(nbytes, seed) for seed in range(3)]
        assert accelerator.pin(hosts[0])
        for order in ((0, 1, 2), (1, 2, 0), (2, 0, 1), (1, 0, 2), (2, 1, 0)):
            events = [take(accelerator, WAYS[way], buffer, hosts[way], None) for way in order]
            accelerator.wait(events[-1])
            assert torch.equal(back(accelerator, buffer), hosts[order[-1]]), order
        accelerator.synchronize()
        accelerator.unpin(hosts[0])
        accelerator.free(buffer)

    @pytest.mark.parametrize("way", WAYS)
    def test_a_copy_waits_for_the_compute_before_it(self, accelerator: Accelerator, way: str) -> None:
        old, new = pattern(2 * MIB, 1), pattern(2 * MIB, 2)
        assert accelerator.pin(new)
        buffer = accelerator.allocate(old.nbytes)
        accelerator.wait(accelerator.copy(buffer, old, pinned=False, after=None))
        with accelerator.running():
            self.keep_busy(accelerator)
            seen = buffer.clone()
        event = take(accelerator, way, buffer, new, accelerator.record())
        accelerator.wait(event)
        assert torch.equal(seen.cpu(), old)
        assert torch.equal(back(accelerator, buffer), new)
        accelerator.synchronize()
        accelerator.unpin(new)
        accelerator.free(buffer)

    @pytest.mark.parametrize("way", WAYS)
    def test_compute_waits_for_a_copy(self, accelerator: Accelerator, way: str) -> None:
        buffer = accelerator.allocate(48 * MIB)
        hosts = [pattern(buffer.nbytes, seed) for seed in (1, 2)]
        pinned = way == "pinned"
        for host in hosts:
            assert not pinned or accelerator.pin(host)
            event = take(accelerator, way, buffer, host, accelerator.record())
            accelerator.wait(event)
            with accelerator.running():
                seen = buffer.clone()
            assert torch.equal(seen.cpu(), host)
        accelerator.synchronize()
        for host in hosts:
            if pinned:
                accelerator.unpin(host)
        accelerator.free(buffer)

    def test_buffers_made_in_inference_mode_are_filled_like_any_other(self, accelerator: Accelerator) -> None:
        hosts = [pattern(4096, seed) for seed in range(2)]
        with torch.inference_mode():
            buffer = accelerator.allocate(4096)
        for mode in (True, False, True):
            with torch.inference_mode(mode):
                for way in WAYS:
                    for host in hosts:
                        accelerator.wait(take(accelerator, way, buffer, host, None))
                        assert torch.equal(back(accelerator, buffer), host)
        accelerator.free(buffer)

    # Failures

    def test_what_a_source_raises_reaches_whoever_waits_and_nobody_else(self, accelerator: Accelerator) -> None:
        good, nbytes = pattern(20 * MIB), 20 * MIB
        buffers = [accelerator.allocate(nbytes) for _ in range(4)]
        events = [
            accelerator.fill(buffer, Numbers(good, failing=9 * MIB if number in (1, 2) else None), after=None)
            for number, buffer in enumerate(buffers)
        ]
        for number in (1, 2, 1):  # the bytes never came: waiting again does not make them come
            with pytest.raises(OSError, match="the file ended early"):
                accelerator.wait(events[number])
        for number in (0, 3):
            accelerator.wait(events[number])
            assert torch.equal(back(accelerator, buffers[number]), good)
        accelerator.synchronize()
        for way in ("fill", "pageable") * 20:  # more often than there are pieces to lose
            accelerator.wait(take(accelerator, way, buffers[1][:MIB], good[:MIB], None))
        assert torch.equal(back(accelerator, buffers[1][:MIB]), good[:MIB])
        for buffer in buffers:
            accelerator.free(buffer)

    @pytest.mark.parametrize("held", [True, False])
    def test_a_buffer_can_be_freed_while_copies_into_it_are_queued(self, accelerator: Accelerator, held: bool) -> None:
        go = threading.Event()
        front, other, last = (accelerator.allocate(20 * MIB) for _ in range(3))
        start = accelerator.counters().weights
        host = pattern(20 * MIB)
        first = accelerator.fill(front, Numbers(host, go=go if held else None), after=None)
        accelerator.fill(other, Numbers(host), after=None)
        accelerator.copy(other, host, pinned=False, after=None)
        accelerator.copy(other, host, pinned=True, after=None)
        kept = accelerator.fill(last, Numbers(host), after=None)
        accelerator.free(other)
        assert accelerator.counters().weights == start - 20 * MIB
        again = accelerator.allocate(20 * MIB)
        event = accelerator.copy(again, host, pinned=False, after=None)
        go.set()
        for buffer, copied in ((front, first), (last, kept), (again, event)):
            accelerator.wait(copied)
            assert torch.equal(back(accelerator, buffer), host)
            accelerator.free(buffer)
        accelerator.synchronize()

    # Pinning

    def test_pinning_and_unpinning_may_be_repeated(self, accelerator: Accelerator) -> None:
        host = pattern(4 * MIB)
        buffer = accelerator.allocate(host.nbytes)
        for _ in range(3):
            assert accelerator.pin(host)
            accelerator.wait(accelerator.copy(buffer, host, pinned=True, after=None))
            accelerator.unpin(host)
            accelerator.wait(accelerator.copy(buffer, host, pinned=False, after=None))
        assert torch.equal(back(accelerator, buffer), host)
        accelerator.free(buffer)

    def test_a_refused_pin_changes_nothing_and_the_next_call_works(self, accelerator: Accelerator) -> None:
        host = pattern(4 * MIB)
        assert self.refused(accelerator, host)
        with accelerator.running():
            assert (torch.ones(4, device=accelerator.device) + 1).sum().item() == 8
        buffer = accelerator.allocate(host.nbytes)
        for way in ("pageable", "fill"):
            accelerator.wait(take(accelerator, way, buffer, host, None))
            assert torch.equal(back(accelerator, buffer), host)
        accelerator.free(buffer)

    def test_staging_locks_a_stated_number_of_bytes(self, accelerator: Accelerator) -> None:
        buffer = accelerator.allocate(4096)
        accelerator.wait(accelerator.fill(buffer, Numbers(pattern(4096)), after=None))
        locked = accelerator.staging_bytes
        assert locked >= 0
        for _ in range(40):
            accelerator.wait(accelerator.fill(buffer, Numbers(pattern(4096)), after=None))
        assert accelerator.staging_bytes == locked
        accelerator.free(buffer)

    # Time and the end

    @pytest.mark.parametrize("way", WAYS)
    def test_seconds_between_events_only_grow(self, accelerator: Accelerator, way: str) -> None:
        host = pattern(8 * MIB + 1)
        assert accelerator.pin(host)
        buffer = accelerator.allocate(host.nbytes)
        start = accelerator.record()
        events = [take(accelerator, way, buffer, host, start) for _ in range(4)]
        accelerator.wait(events[-1])
        events.append(accelerator.record())
        seconds = [accelerator.elapsed(start, event) for event in events]
        assert seconds == sorted(seconds) and seconds[0] > 0
        assert accelerator.elapsed(events[0], events[2]) > 0
        accelerator.synchronize()
        accelerator.unpin(host)
        accelerator.free(buffer)

    def test_synchronize_waits_for_every_queued_copy(self, accelerator: Accelerator) -> None:
        host = pattern(4 * MIB)
        buffers = [accelerator.allocate(host.nbytes) for _ in range(8)]
        for number, buffer in enumerate(buffers):
            take(accelerator, ("fill", "pageable")[number % 2], buffer, host, None)
        accelerator.synchronize()
        for buffer in buffers:
            assert torch.equal(back(accelerator, buffer), host)
            accelerator.free(buffer)

    def test_closing_twice_is_closing_and_nothing_is_copied_afterwards(self, accelerator: Accelerator) -> None:
        buffer, host = accelerator.allocate(4096), pattern(4096)
        accelerator.wait(accelerator.fill(buffer, Numbers(host), after=None))
        accelerator.close()
        accelerator.close()
        for way in WAYS:
            with pytest.raises(RuntimeError, match="closed"):
                take(accelerator, way, buffer, host, None)
        accelerator.synchronize()
        assert accelerator.staging_bytes == 0
        accelerator.free(buffer)

    @pytest.mark.parametrize("seed", range(4))
    def test_any_interleaving_of_copies_and_fills_is_that_of_issue(self, accelerator: Accelerator, seed: int) -> None:
        chance = random.Random(seed)
        nbytes = 3 * MIB + 17
        hosts = [pattern(nbytes, number) for number in range(6)]
        assert all(accelerator.pin(host) for host in hosts)
        buffers = [accelerator.allocate(nbytes) for _ in range(4)]
        expected = [torch.zeros(nbytes, dtype=torch.uint8) for _ in buffers]
        last: list[Event] = [accelerator.copy(buffer, torch.zeros_like(hosts[0]), pinned=False, after=None)
                             for buffer in buffers]  # fmt: skip
        seen: list[tuple[torch.Tensor, torch.Tensor]] = []
        for _ in range(120):
            number, host = chance.randrange(len(buffers)), chance.choice(hosts)
            if chance.random() < 0.05:
                accelerator.free(buffers[number])
                buffers[number], start, end = accelerator.allocate(nbytes), 0, nbytes
            else:
                start = chance.randrange(nbytes)
                end = min(nbytes, start + chance.choice((1, 300, MIB, nbytes)))
            after = accelerator.record()
            expected[number][start:end] = host[start:end]
            last[number] = take(accelerator, chance.choice(WAYS), buffers[number][start:end], host[start:end], after)
            if chance.random() < 0.1:
                accelerator.wait(last[number])
                with accelerator.running():
                    seen.append((buffers[number].clone(), expected[number].clone()))
        for event, buffer, bytes_ in zip(last, buffers, expected, strict=True):
            accelerator.wait(event)
            assert torch.equal(back(accelerator, buffer), bytes_)
        assert all(torch.equal(found.cpu(), bytes_) for found, bytes_ in seen)
        accelerator.synchronize()
        for host in hosts:
            accelerator.unpin(host)
        for buffer in buffers:
            accelerator.free(buffer)
