"""The emulated accelerator keeps the contract of every accelerator."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from accelerator_contract import ROOM, AcceleratorContract
from stowplan_agent.accelerators import Accelerator
from stowplan_agent.accelerators.emulated import EmulatedAccelerator, EmulatedCard


class TestEmulated(AcceleratorContract):
    @pytest.fixture
    def accelerator(self) -> Iterator[EmulatedAccelerator]:
        found = EmulatedAccelerator(EmulatedCard(ROOM + 4096, 4096))
        yield found
        assert found.counters().weights == 0
        found.close()

    def refused(self, accelerator: Accelerator, host: torch.Tensor) -> bool:
        assert isinstance(accelerator, EmulatedAccelerator)
        accelerator.refused_pins = True
        refused = not accelerator.pin(host)
        accelerator.refused_pins = False
        return refused
