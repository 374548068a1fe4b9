"""What an engine holds at one moment, to go back to and to compare with.

Entries alone do not say it: a component that was committed has no host copies, and the way back from a move that made
some would keep them. So a snapshot also says which units had a copy, and how many bytes everyone held.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stowplan_agent.weights.component import ManagedComponent
from stowplan_agent.weights.keyed_units import UnitKey
from stowplan_agent.weights.ledger import Ledger, Tier
from stowplan_api.placement import ComponentPlacement


@dataclass(frozen=True)
class Snapshot:
    """By component. Equal snapshots hold the same weights in the same places; which of them the driver has locked is
    its own affair, for it may refuse today what it granted yesterday."""

    entries: Mapping[str, ComponentPlacement | None]
    host_copies: Mapping[str, frozenset[UnitKey]]
    device_bytes: Mapping[str, int]
    host_bytes: Mapping[str, int]


def take_snapshot(components: Mapping[str, ManagedComponent], ledger: Ledger) -> Snapshot:
    """What these components hold now."""
    return Snapshot(
        entries={name: component.entry for name, component in components.items()},
        host_copies={name: _copied(component) for name, component in components.items()},
        device_bytes={name: ledger.held(name, Tier.DEVICE) for name in components},
        host_bytes={name: ledger.held(name, Tier.PINNED) + ledger.held(name, Tier.PAGEABLE) for name in components},
    )


def drop_new_copies(components: Mapping[str, ManagedComponent], before: Snapshot) -> None:
    """Give back host copies that a snapshot does not have, of units that stay on the device without them."""
    for name, component in components.items():
        for key, unit in component.items():
            if key not in before.host_copies.get(name, frozenset()):
                unit.drop_host_copy()


def _copied(component: ManagedComponent) -> frozenset[UnitKey]:
    return frozenset(key for key, unit in component.items() if unit.host is not None)
