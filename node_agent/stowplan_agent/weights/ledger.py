"""Every device and host byte that the engine takes has an owner.

The ledger is the engine's own account; after every transaction it must agree with the accelerator's, or the
transaction has failed. It is what reports, metrics and the `ResidencyPlacement` status read.
"""

from __future__ import annotations

from collections import defaultdict
from enum import StrEnum


class Tier(StrEnum):
    """Where bytes lie."""

    DEVICE = "device"
    PINNED = "pinned"
    PAGEABLE = "pageable"


class LedgerError(RuntimeError):
    """Two accounts of the same bytes disagree."""


class Ledger:
    """Bytes by component and tier. A balance is never negative."""

    def __init__(self) -> None:
        """An empty account."""
        self._balances: defaultdict[tuple[str, Tier], int] = defaultdict(int)
        self.streamed_bytes = 0
        """All bytes that were copied to the device so far."""

    def take(self, component: str, tier: Tier, nbytes: int) -> None:
        """Write down bytes that were taken."""
        self._balances[component, tier] += nbytes

    def give_back(self, component: str, tier: Tier, nbytes: int) -> None:
        """Write down bytes that were given back. Raises `LedgerError` rather than go below zero."""
        if self._balances[component, tier] < nbytes:
            raise LedgerError(
                f"{component} would give back {nbytes} bytes of {tier} memory "
                f"but holds {self._balances[component, tier]}"
            )
        self._balances[component, tier] -= nbytes

    def held(self, component: str, tier: Tier) -> int:
        """Bytes that one component holds in one tier."""
        return self._balances[component, tier]

    def total(self, tier: Tier) -> int:
        """Bytes that all components hold in one tier."""
        return sum(nbytes for (_, where), nbytes in self._balances.items() if where == tier)

    def check(self, device_bytes: int) -> None:
        """Compare with the accelerator's account of weights. Raises `LedgerError` when they differ by a byte."""
        own = self.total(Tier.DEVICE)
        if own != device_bytes:
            raise LedgerError(f"the ledger says {own} bytes of weights on the device, the allocator {device_bytes}")
