"""One stage of a request under a placement, as numbers: what is on the card, and where the seconds go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

NOISE: Final = 1e-9
"""Shares of a stage below this are rounding of sums."""


@dataclass(frozen=True, slots=True)
class Share:
    """What one component has on the card in one stage, in bytes."""

    component: str
    always: int
    """There for good."""
    visiting: int
    """There for this stage: brought in, prefetched, or a ring of slots."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One interval of one workload. Seconds are of the whole request, bytes of the rank that has least room."""

    number: int
    """From 1, as people count."""
    interval: int
    component: str | None
    entry: str
    passes: int
    start: float
    seconds: float
    layers: float
    """Seconds that the layers compute."""
    outside_layers: float
    """Seconds computed outside the layers, or between components."""
    held: tuple[Share, ...]
    outside: int
    """Bytes of the context and of workspaces outside the allocator."""
    activations: int
    reserve: int
    adaptive: bool

    @property
    def name(self) -> str:
        """Component and entry."""
        return f"{self.component} {self.entry}" if self.component else self.entry

    @property
    def waiting(self) -> float:
        """Seconds in which compute waits for weights, or is slowed by copies beside it."""
        waiting = self.seconds - self.layers - self.outside_layers
        return waiting if waiting > NOISE * self.seconds else 0.0

    @property
    def weights(self) -> int:
        """Bytes of all weights on the card."""
        return sum(share.always + share.visiting for share in self.held)

    @property
    def peak(self) -> int:
        """All bytes on the card, without the reserve."""
        return self.outside + self.weights + self.activations
