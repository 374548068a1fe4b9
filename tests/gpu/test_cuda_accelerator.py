"""A real GPU keeps the contract of every accelerator, and what only it can show. ``pytest -m gpu tests/gpu``."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest
import torch

from accelerator_contract import MIB, ROOM, AcceleratorContract, Numbers, back, pattern
from stowplan_agent.accelerators import Accelerator
from stowplan_agent.accelerators.cuda import CudaAccelerator
from stowplan_agent.accelerators.staging_memory import RING_BYTES

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU is visible to torch"),
]


def staging_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("staging-")]


@pytest.fixture
def accelerator() -> Iterator[CudaAccelerator]:
    """A card of which `ROOM` may be used."""
    gc.collect()
    torch.cuda.empty_cache()
    whole = CudaAccelerator()
    kept = torch.cuda.memory_reserved()
    found = CudaAccelerator(ceiling_bytes=whole.outside_bytes() + kept + ROOM)
    try:
        yield found
        assert found.counters().weights == 0
    finally:
        found.close()
        whole.close()
        torch.cuda.set_per_process_memory_fraction(1.0)
        gc.collect()
        torch.cuda.empty_cache()


class TestCuda(AcceleratorContract):
    def keep_busy(self, accelerator: Accelerator) -> None:
        torch.cuda._sleep(50_000_000)

    def refused(self, accelerator: Accelerator, host: torch.Tensor) -> bool:
        assert accelerator.pin(host)
        refused = not accelerator.pin(host)  # the driver refuses to register memory twice
        accelerator.unpin(host)
        return refused


def test_a_pageable_copy_does_not_hold_up_the_host(accelerator: CudaAccelerator) -> None:
    """Queued behind compute that has not ended: the host is back before the bytes could have moved."""
    buffer, host = accelerator.allocate(64 * MIB), pattern(64 * MIB)
    accelerator.wait(accelerator.copy(buffer, host, pinned=False, after=None))
    accelerator.synchronize()
    torch.cuda._sleep(2_000_000_000)
    busy = accelerator.record()
    event = accelerator.copy(buffer, host, pinned=False, after=busy)
    assert not busy.query()
    accelerator.wait(event)  # 64 MiB fit the ring, so they are on the stream while the device still sleeps
    assert not busy.query()
    assert torch.equal(back(accelerator, buffer), host)
    accelerator.free(buffer)


def test_more_than_the_ring_holds_waits_for_compute_and_arrives() -> None:
    accelerator = CudaAccelerator()  # the whole card: the ring is larger than the others' room
    nbytes = RING_BYTES + 33 * MIB + 7
    buffer, host = accelerator.allocate(nbytes), pattern(nbytes)
    torch.cuda._sleep(200_000_000)
    for source_only in (True, False):
        after = accelerator.record()
        event = (
            accelerator.fill(buffer, Numbers(host), after=after)
            if source_only
            else accelerator.copy(buffer, host, pinned=False, after=after)
        )
        accelerator.wait(event)
        assert torch.equal(back(accelerator, buffer), host)
    accelerator.free(buffer)
    accelerator.close()


def test_a_trimmed_ring_opens_again_at_its_next_use(accelerator: CudaAccelerator) -> None:
    before = staging_threads()
    buffer, host = accelerator.allocate(3 * MIB), pattern(3 * MIB)
    for _ in range(2):
        accelerator.fill(buffer, Numbers(host), after=None)
        accelerator.trim()  # what is on its way arrives
        assert accelerator.staging_bytes == 0 and staging_threads() == before
        assert torch.equal(back(accelerator, buffer), host)
    accelerator.free(buffer)


def test_the_ring_is_taken_at_first_use_and_given_back_with_its_threads(accelerator: CudaAccelerator) -> None:
    before = staging_threads()
    buffer = accelerator.allocate(4096)
    accelerator.wait(accelerator.copy(buffer, pattern(4096), pinned=True, after=None))
    assert accelerator.staging_bytes == 0 and staging_threads() == before
    accelerator.wait(accelerator.copy(buffer, pattern(4096), pinned=False, after=None))
    assert accelerator.staging_bytes == RING_BYTES and len(staging_threads()) > len(before)
    accelerator.free(buffer)
    accelerator.close()
    assert accelerator.staging_bytes == 0 and staging_threads() == before


def test_where_the_ring_cannot_be_locked_copies_are_slower_and_right(
    accelerator: CudaAccelerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accelerator._staging, "_pin", lambda _: False)
    nbytes = 20 * MIB + 1
    buffer, host = accelerator.allocate(nbytes), pattern(nbytes)
    for seed in range(3):
        host = pattern(nbytes, seed)
        accelerator.fill(buffer, Numbers(pattern(nbytes, 9)), after=accelerator.record())
        accelerator.wait(accelerator.copy(buffer, host, pinned=False, after=accelerator.record()))
        assert torch.equal(back(accelerator, buffer), host)
        accelerator.wait(accelerator.fill(buffer, Numbers(host), after=accelerator.record()))
        assert torch.equal(back(accelerator, buffer), host)
    assert accelerator.staging_bytes == 0
    accelerator.free(buffer)


def test_closing_fails_what_is_queued_rather_than_leave_it_without_bytes(accelerator: CudaAccelerator) -> None:
    go = threading.Event()
    buffer, source = accelerator.allocate(20 * MIB), Numbers(pattern(20 * MIB), go=go)
    event = accelerator.fill(buffer, source, after=None)
    assert source.begun.wait(60)
    closing = threading.Thread(target=accelerator.close)
    closing.start()
    go.set()
    closing.join(60)
    assert not closing.is_alive()
    # The last bytes may have been read before the ring was closed; then nothing has failed.
    try:
        accelerator.wait(event)
    except RuntimeError as error:
        assert "closed before all bytes were copied" in str(error)
    else:
        assert torch.equal(back(accelerator, buffer), source.tensor)
    accelerator.free(buffer)


def test_a_freed_buffer_is_empty_whoever_keeps_it(accelerator: CudaAccelerator) -> None:
    buffer = accelerator.allocate(4 * MIB)
    view = buffer[:10]
    accelerator.fill(buffer, Numbers(pattern(4 * MIB)), after=None)
    accelerator.free(buffer)
    assert view.untyped_storage().nbytes() == buffer.untyped_storage().nbytes() == 0
    accelerator.synchronize()


def test_the_facts_are_those_of_the_card_that_torch_uses(accelerator: CudaAccelerator) -> None:
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    facts, properties = accelerator.facts, torch.cuda.get_device_properties(accelerator.device)
    assert facts is not None and facts.uuid is not None and facts.memory_bytes is not None
    assert facts.uuid.endswith(str(properties.uuid).removeprefix("GPU-"))
    assert facts.memory_bytes >= properties.total_memory * 0.95
    assert facts.used_bytes is not None and facts.used_bytes > 0
    assert str(facts).startswith(properties.name)


def test_memory_that_is_free_can_be_had_in_one_piece(accelerator: CudaAccelerator) -> None:
    """A little that is held in the midst of what was one large buffer is in the way of nothing else."""
    whole = accelerator.allocate(ROOM * 8 // 10)
    accelerator.free(whole)
    little = torch.empty(ROOM // 32, dtype=torch.uint8, device=accelerator.device)
    larger = accelerator.allocate(ROOM * 9 // 10)
    accelerator.free(larger)
    del little
