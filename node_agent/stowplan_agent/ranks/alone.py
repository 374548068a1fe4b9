"""The company of a rank that has none: what ranks do in step (`company`), where there is one.

It does nothing beside what it is asked for, so that whoever starts, measures and serves says everything once, for one
rank and for many.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from stowplan_agent.accelerators import Accelerator
from stowplan_agent.weights.neighbours import NeighboursOf

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

T = TypeVar("T")


class Alone:
    """The company of a rank that has none."""

    rank = 0
    ranks = 1
    peer_rate = 0.0
    """Bytes a second from one peer's device; 0 where there is no access."""

    def neighbours(self, accelerator: Accelerator) -> NeighboursOf | None:
        """What the weights engine is given, once the device is open."""
        return None

    def share(self, device: torch.device, ring: int, ulysses: int, enable: Callable[[DeviceMesh], None]) -> None:
        """Let the networks of this rank share their sequence with those of the others."""

    def request(self, work: Callable[[], T]) -> T:
        """One request of the pipeline, on all ranks at once. A failure of one is a failure of all."""
        return work()

    def stops(self, own: Callable[[], bool]) -> Callable[[], bool]:
        """A function for the pipeline to ask after each step: whether any rank's own says so, the same on all."""
        return own

    def most(self, name: str, value: int) -> int:
        """The largest of all ranks' values."""
        return value

    def least(self, name: str, value: int) -> int:
        """The smallest of all ranks' values."""
        return value

    def gather(self, name: str, value: Any) -> list[Any]:
        """Every rank's JSON value, by rank."""
        return [value]

    def in_turn(self, name: str, work: Callable[[], T]) -> T:
        """Rank 0 does it before the others: what it fetches, they find. A failure of one is a failure of all."""
        return work()

    def order(self, value: Any) -> None:
        """Rank 0: what the others are to do next."""
