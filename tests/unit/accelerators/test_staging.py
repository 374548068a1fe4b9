"""The staging ring over a stream that is a thread: order, errors, cancelling, closing, and no wait that never ends."""

from __future__ import annotations

import gc
import random
import threading
import time
import weakref
from collections.abc import Iterator

import pytest
import torch

from accelerator_contract import Numbers, pattern
from stowplan_agent.accelerators.staged_copy import MemorySource, StagedCopy
from stowplan_agent.accelerators.staging import Staging
from unit.accelerators.threaded_ring import PIECE, device, fill, landed, ring_over
from unit.accelerators.threaded_stream import DEADLINE, Stream


@pytest.fixture
def ring(stream: Stream) -> Iterator[Staging]:
    found = ring_over(stream)
    found.open()
    yield found
    stream.valve.set()
    found.close()
    assert stream.locked == []


@pytest.mark.parametrize("pinned", [True, False])
@pytest.mark.parametrize(("pieces", "threads"), [(1, 1), (1, 4), (4, 1), (4, 4), (3, 16)])
@pytest.mark.parametrize("seed", range(3))
def test_any_program_ends_as_if_done_in_turn(
    stream: Stream, pieces: int, threads: int, pinned: bool, seed: int
) -> None:
    chance = random.Random(seed)
    ring = ring_over(stream, pieces=pieces, threads=threads, pinned=pinned)
    assert ring.open() is pinned and ring.locked_bytes == (pieces * PIECE if pinned else 0)
    hosts = [pattern(5 * PIECE + 3, number) for number in range(4)]
    buffers, expected = [device(5 * PIECE + 3) for _ in range(3)], [device(5 * PIECE + 3) for _ in range(3)]
    for _ in range(150):
        number, host = chance.randrange(3), chance.choice(hosts)
        start = chance.randrange(host.nbytes + 1)
        part = slice(start, min(host.nbytes, start + chance.choice((0, 1, PIECE, PIECE + 1, host.nbytes))))
        expected[number][part] = host[part]
        match chance.randrange(3):
            case 0:
                copy = StagedCopy(buffers[number][part], MemorySource(host[part]), after=None)
            case 1:
                copy = StagedCopy(buffers[number][part], Numbers(host[part]), after=None)
            case _:
                copy = StagedCopy(buffers[number][part], None, after=None, straight=host[part])
        ring.queue(copy)
        if chance.random() < 0.1:
            landed(copy)
    ring.settle()
    assert not ring.busy
    stream.synchronize()
    assert all(torch.equal(*pair) for pair in zip(buffers, expected, strict=True))
    ring.close()
    assert stream.locked == []


def test_nothing_is_taken_before_the_first_use_and_all_is_given_back(stream: Stream) -> None:
    before = threading.active_count()
    ring = ring_over(stream)
    assert (ring.locked_bytes, threading.active_count()) == (0, before)
    ring.open()
    ring.open()
    assert (ring.locked_bytes, stream.locked, threading.active_count()) == (4 * PIECE, [4 * PIECE], before + 4)
    for _ in range(2):
        ring.close()
        assert (ring.locked_bytes, stream.locked, threading.active_count()) == (0, [], before)
    with pytest.raises(RuntimeError, match="is closed"):
        fill(ring, device(1), Numbers(pattern(1)))
    ring_over(stream).close()


def test_a_ring_that_is_prepared_opens_beside_its_user(stream: Stream) -> None:
    ring = ring_over(stream)
    for _ in range(2):
        ring.prepare()
    assert ring.open() and stream.locked == [4 * PIECE], "once"
    buffer = device(9 * PIECE)
    landed(fill(ring, buffer, Numbers(pattern(9 * PIECE))))
    assert torch.equal(buffer, pattern(9 * PIECE))
    ring.prepare()
    ring.close()
    ring.prepare()
    assert stream.locked == []


def test_closing_waits_for_an_opening(stream: Stream) -> None:
    begun, go = threading.Event(), threading.Event()

    def pin(memory: torch.Tensor) -> bool:
        begun.set()
        assert go.wait(DEADLINE)
        return stream.pin(memory)

    before = threading.active_count()
    ring = Staging(stream, pin=pin, unpin=stream.unpin, piece_bytes=PIECE, ring_bytes=4 * PIECE, threads=2)
    ring.prepare()
    assert begun.wait(DEADLINE)
    closing = threading.Thread(target=ring.close)
    closing.start()
    while not ring.closed:
        assert closing.is_alive()
    go.set()
    closing.join(DEADLINE)
    assert (stream.locked, threading.active_count()) == ([], before)


def test_what_fails_while_it_is_prepared_fails_whoever_needs_it(stream: Stream) -> None:
    def pin(_: torch.Tensor) -> bool:
        raise OSError("no memory can be locked")

    ring = Staging(stream, pin=pin, unpin=stream.unpin, piece_bytes=PIECE, ring_bytes=4 * PIECE, threads=2)
    ring.prepare()
    with pytest.raises(OSError, match="no memory can be locked"):
        ring.open()
    ring.close()


def test_the_host_waits_only_where_it_asks_to(stream: Stream, ring: Staging) -> None:
    """More bytes than pieces, and a link that stands still: queueing returns, and so does freeing."""
    stream.valve.clear()
    buffers = [device(9 * PIECE) for _ in range(3)]
    copies = [fill(ring, buffer, Numbers(pattern(9 * PIECE))) for buffer in buffers]
    assert ring.busy and not copies[0]._on_stream.is_set()
    ring.cancel(buffers[1].untyped_storage().data_ptr())
    stream.valve.set()
    for copy in (copies[0], copies[2]):
        landed(copy)
    assert torch.equal(buffers[2], pattern(9 * PIECE))
    assert not buffers[1].any()
    copies[1].resolve()


def test_copies_are_begun_in_turn_and_wait_for_their_own_event(stream: Stream, ring: Staging) -> None:
    first, second = threading.Event(), threading.Event()
    slow, quick = device(2 * PIECE), device(PIECE)
    held = Numbers(pattern(2 * PIECE), go=threading.Event())
    one = fill(ring, slow, held, after=first)
    two = fill(ring, quick, Numbers(pattern(PIECE)), after=second)
    first.set()
    assert held.begun.wait(DEADLINE)
    assert stream.sent == [] and held.go is not None  # read long ago, but the copy before it is not on the stream
    held.go.set()
    landed(one)
    assert torch.equal(slow, pattern(2 * PIECE))
    second.set()
    landed(two)
    assert torch.equal(quick, pattern(PIECE))
    assert stream.sent[-1] == (quick.data_ptr(), PIECE)


@pytest.mark.parametrize("apart", ["another buffer", "the same buffer", "in turn", "an event to come"])
def test_the_last_read_of_a_copy_does_not_hold_up_the_next_one(stream: Stream, ring: Staging, apart: str) -> None:
    """Unless they share a buffer, or that one must wait. Either way they are over in turn."""
    buffer, event = device(2 * PIECE), threading.Event()
    other = buffer[PIECE:] if apart == "the same buffer" else device(PIECE)
    held, last = Numbers(pattern(PIECE), go=threading.Event()), Numbers(pattern(PIECE, 1))
    if apart != "an event to come":
        event.set()
    one = fill(ring, buffer[:PIECE], held)
    assert held.begun.wait(DEADLINE) and held.go is not None
    two = ring.queue(StagedCopy(other, last, after=event, in_turn=apart == "in turn"))
    three = fill(ring, device(PIECE), Numbers(pattern(PIECE, 2)))
    deadline = time.monotonic() + DEADLINE
    while not (two.filled or stream.sent):
        assert time.monotonic() < deadline
    assert [address for address, _ in stream.sent] == ([other.data_ptr()] if apart == "another buffer" else [])
    assert not any(copy._on_stream.is_set() for copy in (one, two, three))
    held.go.set()
    event.set()
    for copy in (one, two, three):
        landed(copy)
    assert torch.equal(buffer[:PIECE], pattern(PIECE)) and torch.equal(other, pattern(PIECE, 1))


def test_a_slow_read_holds_up_only_its_own_piece(stream: Stream, ring: Staging) -> None:
    class Uneven(Numbers):
        def read(self, start: int, target: torch.Tensor) -> None:
            if start == 0:
                super().read(start, target)
            else:
                target.copy_(self.tensor[start : start + target.nbytes])
                if start == 9 * PIECE:
                    assert self.go is not None
                    self.go.set()  # the last piece is read although the first one is not

    buffer = device(10 * PIECE)
    landed(fill(ring, buffer, Uneven(pattern(10 * PIECE), go=threading.Event())))
    assert torch.equal(buffer, pattern(10 * PIECE))


def test_a_failed_read_is_its_own_copys_and_keeps_no_piece(stream: Stream, ring: Staging) -> None:
    for _ in range(10):
        good, bad = device(6 * PIECE), device(6 * PIECE)
        failing = fill(ring, bad, Numbers(pattern(6 * PIECE), failing=3 * PIECE))
        following = fill(ring, good, Numbers(pattern(6 * PIECE)))
        for _ in range(2):
            with pytest.raises(OSError, match="the file ended early"):
                failing.resolve()
        assert failing.end().wait(DEADLINE)
        landed(following)
        assert torch.equal(good, pattern(6 * PIECE))
    ring.settle()


def test_a_refused_send_is_its_own_copys_too(stream: Stream, ring: Staging) -> None:
    stream.refusing = {2, 8}
    staged = fill(ring, device(4 * PIECE), Numbers(pattern(4 * PIECE)))
    with pytest.raises(RuntimeError, match="is refused"):
        staged.resolve()
    stream.refusing = {len(stream.sent) + 1}
    straight = ring.queue(StagedCopy(device(8), None, after=None, straight=pattern(8)))
    with pytest.raises(RuntimeError, match="is refused"):
        straight.resolve()
    buffer = device(9 * PIECE)
    landed(fill(ring, buffer, Numbers(pattern(9 * PIECE))))
    assert torch.equal(buffer, pattern(9 * PIECE))


def test_a_device_that_is_gone_is_an_error_and_no_endless_wait(stream: Stream, ring: Staging) -> None:
    stream.mute = True
    copy = fill(ring, device(PIECE), Numbers(pattern(PIECE)))
    for ask in (copy.resolve, copy.end, copy.resolve):
        with pytest.raises(RuntimeError, match="the device is gone"):
            ask()
    stream.mute = False


def test_cancelling_waits_for_reads_and_lets_the_rest_go(stream: Stream, ring: Staging) -> None:
    source = Numbers(pattern(40 * PIECE), go=threading.Event())
    buffer, other = device(40 * PIECE), device(PIECE)
    copy = fill(ring, buffer, source)
    behind = fill(ring, other, Numbers(pattern(PIECE)))
    assert source.begun.wait(DEADLINE) and source.go is not None
    freeing = threading.Thread(target=ring.cancel, args=(buffer.untyped_storage().data_ptr(),))
    freeing.start()
    while not copy.cancelled:
        assert freeing.is_alive()
    assert freeing.is_alive()
    source.go.set()
    freeing.join(DEADLINE)
    assert not freeing.is_alive() and copy.reading == 0
    asked = len(source.asked)
    landed(behind)
    assert len(source.asked) == asked <= 4 and not buffer.any()
    assert torch.equal(other, pattern(PIECE))


def test_closing_fails_what_has_not_been_sent(stream: Stream) -> None:
    ring = ring_over(stream)
    ring.open()
    source = Numbers(pattern(40 * PIECE), go=threading.Event())
    copies = [fill(ring, device(40 * PIECE), source), fill(ring, device(1), Numbers(pattern(1)))]
    assert source.begun.wait(DEADLINE) and source.go is not None
    closing = threading.Thread(target=ring.close)
    closing.start()
    while not ring.closed:
        assert closing.is_alive()
    source.go.set()
    closing.join(DEADLINE)
    assert not closing.is_alive()
    for copy in copies:
        with pytest.raises(RuntimeError, match="closed before all bytes were copied"):
            copy.resolve()
    assert stream.locked == []


def test_an_idle_ring_keeps_neither_buffers_nor_sources_nor_errors_alive(stream: Stream, ring: Staging) -> None:
    class Failing(Numbers):
        __hash__ = object.__hash__

    source, buffer = Failing(pattern(3 * PIECE), failing=0), device(3 * PIECE)
    copy = fill(ring, buffer, source)
    with pytest.raises(OSError):
        copy.resolve()
    gone = [weakref.ref(source), weakref.ref(buffer)]
    del source, buffer, copy
    # The threads are done with it once they have had a piece of something else each.
    landed(fill(ring, device(40 * PIECE), Numbers(pattern(40 * PIECE))))
    gc.collect()
    assert [reference() for reference in gone] == [None, None]
