"""H4: a driver that refuses to lock more than some bytes is a limit of the plan, not a reason to die."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from starts import settings_of, start
from stowplan_agent.accelerators.emulated import EmulatedAccelerator

LIMIT = 4 << 20


@pytest.mark.parametrize("how", ["by code", "by exception"])
def test_h4_the_next_plan_pins_no_more_than_the_driver_locked(
    how: str, write_tiny: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    locked: dict[int, int] = {}

    def pin(card: EmulatedAccelerator, buffer: torch.Tensor) -> bool:
        if sum(locked.values()) + buffer.nbytes > LIMIT:
            if how == "by exception":
                raise RuntimeError("CUDA error: out of memory")
            return False
        locked[buffer.data_ptr()] = buffer.nbytes
        return True

    def unpin(card: EmulatedAccelerator, buffer: torch.Tensor) -> None:
        locked.pop(buffer.data_ptr(), None)

    monkeypatch.setattr(EmulatedAccelerator, "pin", pin)
    monkeypatch.setattr(EmulatedAccelerator, "unpin", unpin)
    started = start(settings_of(write_tiny("tiny-wan"), "40Mi"))
    try:
        assert started.phase == "Ready"
        assert sum(part.pinned_bytes for part in started.status.components) <= LIMIT
        assert started.startup.prepared.record.nodes[0].pinnable_bytes <= LIMIT
    finally:
        started.startup.close()
