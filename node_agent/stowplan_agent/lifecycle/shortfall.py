"""What to say when a request did not fit even with everything streamed: what was short, of how much, and what helps."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from stowplan_agent.accelerators.shortage import first_sentence, shortage
from stowplan_agent.calibration import Machine
from stowplan_agent.lifecycle.shapes import describe
from stowplan_api.diffusion_deployment import Shape
from stowplan_api.quantity import for_people


@dataclass(frozen=True)
class Shortfall:
    """One attempt that ran out of device memory. Holds no tensor: the error's traceback is not kept."""

    running: str
    """What ran: an interval of the request, or a phase."""
    shape: Shape | None
    """The shape that was tried; None while loading."""
    short_bytes: int | None
    """What the allocation that failed lacked, to torch's rounding; None where the error has no numbers."""
    detail: str
    """torch's own words."""
    any_shape: bool = False
    """Whether no smaller shape would help: the shape is not to blame, or there is none."""

    @classmethod
    def of(cls, error: torch.OutOfMemoryError, running: str, shape: Shape | None = None) -> Shortfall:
        """What an error says."""
        return cls(running, shape, shortage(error), first_sentence(error))

    def same_as(self, other: Shortfall) -> bool:
        """Whether both failed in the same place for want of the same bytes."""
        return self.short_bytes is not None and (self.running, self.short_bytes) == (other.running, other.short_bytes)

    def sentence(self, model: str, machine: Machine, *, reserve_bytes: int) -> str:
        """For the status. What is short is a lower bound (what comes after is not known), and is called one."""
        where, smaller = self.running, ""
        if self.shape is not None and not self.any_shape:
            where, smaller = f"{self.running} at {describe(self.shape)}", ", or declare a smaller shape"
        if self.short_bytes is None:
            lacks = f"ran out of memory ({self.detail})"
            way_out = f"give it more than {for_people(machine.capacity_bytes)} of device memory"
        else:
            lacks = f"is at least {self.short_bytes} bytes short"
            enough = machine.capacity_bytes + self.short_bytes + reserve_bytes
            way_out = f"give it at least {for_people(enough)} ({enough} bytes) of device memory"
        return (
            f"{model} does not fit {machine.device} even with everything streamed: {where} {lacks}; {way_out}{smaller}"
        )
