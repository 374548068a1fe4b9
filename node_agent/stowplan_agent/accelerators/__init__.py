"""The device behind one small interface: `cuda` is real, `emulated` runs anywhere; the engine above is the same."""

from stowplan_agent.accelerators.choice import open_accelerator
from stowplan_agent.accelerators.facts import DeviceFacts
from stowplan_agent.accelerators.interface import Accelerator, ByteSource, Event, MemoryCounters

__all__ = ["Accelerator", "ByteSource", "DeviceFacts", "Event", "MemoryCounters", "open_accelerator"]
