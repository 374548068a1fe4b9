"""Copies and fills: the bytes, their order, and the two streams waiting for each other."""

from __future__ import annotations

import pytest
import torch

from accelerator_contract.material import MIB, SIZES, WAYS, Numbers, Subject, back, pattern, take
from stowplan_agent.accelerators import Accelerator


class CopyContract(Subject):
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
