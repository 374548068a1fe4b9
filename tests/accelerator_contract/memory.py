"""Memory: every byte counted, the ceiling held, weights apart from activations, pins that may be refused."""

from __future__ import annotations

import gc

import pytest
import torch

from accelerator_contract.material import MIB, ROOM, SIZES, SLACK, Numbers, Subject, back, pattern, take
from stowplan_agent.accelerators import Accelerator


class MemoryContract(Subject):
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
        assert locked in {0, accelerator.staging_need_bytes}
        for _ in range(40):
            accelerator.wait(accelerator.fill(buffer, Numbers(pattern(4096)), after=None))
        assert accelerator.staging_bytes == locked
        accelerator.free(buffer)

    def test_to_expect_fills_is_a_hint_that_changes_no_byte(self, accelerator: Accelerator) -> None:
        buffer, host = accelerator.allocate(3 * MIB), pattern(3 * MIB)
        for _ in range(2):
            accelerator.expect_fills()
            accelerator.wait(accelerator.fill(buffer, Numbers(host), after=None))
            assert torch.equal(back(accelerator, buffer), host)
            accelerator.expect_fills()
            accelerator.trim()
            assert accelerator.staging_bytes == 0
        accelerator.free(buffer)

    def test_what_is_trimmed_is_taken_again_by_the_next_copy(self, accelerator: Accelerator) -> None:
        buffer = accelerator.allocate(3 * MIB)
        for number in range(2):
            host = pattern(3 * MIB, number)
            accelerator.copy(buffer, host, pinned=False, after=None)
            accelerator.trim()  # the copy that is on its way arrives
            assert accelerator.staging_bytes == 0
            assert torch.equal(back(accelerator, buffer), host)
        accelerator.trim()
        accelerator.free(buffer)
