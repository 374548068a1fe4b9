"""What fails, what is freed or closed early, what time it takes, and any mixture of it all."""

from __future__ import annotations

import random
import threading

import pytest
import torch

from accelerator_contract.material import MIB, WAYS, Numbers, Subject, back, pattern, take
from stowplan_agent.accelerators import Accelerator, Event


class EndContract(Subject):
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
