"""Every placement of section 2, listed naively: what the solver is checked against.

``pinnedBytes`` may be any number; listed are nothing, a half, and everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product

from examples import offload, resident

from stowplan_agent.planning.links import have_peers
from stowplan_agent.planning.price import cost
from stowplan_api.placement import ComponentPlacement, GroupPlacement, Placement
from stowplan_api.plan import Cost
from stowplan_api.record import CalibrationRecord, Component, Group


def placements(record: CalibrationRecord) -> Iterator[tuple[Placement, Cost]]:
    for chosen in product(*(list(entries(component, record)) for component in record.components)):
        placement = Placement(components=chosen)
        yield placement, cost(record, placement)


def entries(component: Component, record: CalibrationRecord) -> Iterator[ComponentPlacement]:
    ranks, peers = len(record.ranks), have_peers(record)
    mode = component.fixed.mode if component.fixed else None
    if mode in (None, "Resident"):
        yield resident(component.name)
    if mode in (None, "Offload"):
        half = -(-component.total_bytes() // 4096) * 2048
        for pinned in _pins((0, half, component.total_bytes()), ranks, peers=peers):
            yield offload(component.name, pinned)
            yield offload(component.name, pinned, prefetch=True)
    if mode in (None, "Layerwise") and component.groups:
        for loose in ("Permanent", "Forward") if component.loose_bytes else ("Permanent",):
            for groups in product(*(list(_groups(group, ranks, peers=peers)) for group in component.groups)):
                yield ComponentPlacement(
                    name=component.name,
                    mode="Layerwise",
                    loose_lifetime=loose,
                    groups=groups,  # type: ignore[arg-type]
                )


def _groups(group: Group, ranks: int, *, peers: bool) -> Iterator[GroupPlacement]:
    layers = len(group.layer_bytes)
    for kept, sharded in product(range(layers + 1), range(layers + 1 if peers else 1)):
        if kept + sharded > layers:
            continue
        for policy in ("Strided", "Leading") if max(kept, sharded, layers - kept - sharded) < layers else ("Strided",):
            for lifetime in ("Permanent", "Forward") if kept and not sharded else ("Permanent",):
                for slots in (2, 3) if kept < layers else (2,):
                    copies = layers if lifetime == "Forward" else layers - kept - sharded
                    for pins in _pins(range(copies + 1), ranks, peers=peers):
                        yield GroupPlacement(
                            name=group.name,
                            resident_layers=kept,
                            policy=policy,  # type: ignore[arg-type]
                            lifetime=lifetime,  # type: ignore[arg-type]
                            slots=slots,
                            pinned_layers=pins,
                            sharded_layers=sharded or None,
                        )


def _pins(counts: Iterable[int], ranks: int, *, peers: bool) -> Iterator[tuple[int, ...]]:
    """Pins of each rank. With peers ranks copy at one pace, so that all pin alike (`test_pins_of_peers_are_alike`)."""
    return zip(*[counts] * ranks, strict=True) if peers else product(counts, repeat=ranks)
