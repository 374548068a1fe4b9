"""What the lifecycle asks of whoever it reports to: the cluster's object, or a person at a terminal.

A report never blocks and is absolute: the newest status is the whole of what is said.
"""

from __future__ import annotations

from typing import Protocol

from stowplan_api.residency_placement import ResidencyPlacementSpec, ResidencyPlacementStatus


class Reporter(Protocol):
    """What the lifecycle needs of whoever it reports to."""

    def read_spec(self, timeout: float | None = None) -> ResidencyPlacementSpec:
        """What this pod was rendered from; waits for it."""
        ...

    @property
    def status(self) -> ResidencyPlacementStatus:
        """The newest status; after `read_spec`, the first one of this boot, to build the next ones on."""
        ...

    def report(self, status: ResidencyPlacementStatus) -> None:
        """Make this the status. Never blocks."""
        ...

    def flush(self, timeout: float) -> bool:
        """Wait until the newest status is written, at most ``timeout`` seconds; whether it is."""
        ...

    def close(self, timeout: float = 5.0) -> None:
        """Write what is left if that takes at most ``timeout`` seconds, and stop."""
        ...


class ReporterError(RuntimeError):
    """The placement's object did not come; the message says what was seen instead."""
