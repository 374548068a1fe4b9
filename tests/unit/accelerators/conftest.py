"""An emulated card of 1 MiB that every test may fill to the last byte, and a stream that is a thread."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")

from stowplan_agent.accelerators.emulated import EmulatedAccelerator, EmulatedCard
from unit.accelerators.threaded_stream import Stream


@pytest.fixture
def card() -> Iterator[EmulatedAccelerator]:
    accelerator = EmulatedAccelerator(EmulatedCard(capacity_bytes=(1 << 20) + 4096, outside_bytes=4096))
    yield accelerator
    accelerator.close()


@pytest.fixture
def stream() -> Iterator[Stream]:
    found = Stream()
    yield found
    found.end()
