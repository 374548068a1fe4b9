"""Every placement of section 2, listed naively: what the solver is checked against.

``pinnedBytes`` may be any number; listed are nothing, a half, and everything.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from examples import offload, resident

from stowplan_agent.planning.price import cost
from stowplan_api.placement import ComponentPlacement, GroupPlacement, Placement
from stowplan_api.plan import Cost
from stowplan_api.record import CalibrationRecord, Component, Group


def placements(record: CalibrationRecord) -> Iterator[tuple[Placement, Cost]]:
    ranks = len(record.ranks)
    for chosen in product(*(list(entries(component, ranks)) for component in record.components)):
        placement = Placement(components=chosen)
        yield placement, cost(record, placement)


def entries(component: Component, ranks: int) -> Iterator[ComponentPlacement]:
    mode = component.fixed.mode if component.fixed else None
    if mode in (None, "Resident"):
        yield resident(component.name)
    if mode in (None, "Offload"):
        half = -(-component.total_bytes() // 4096) * 2048
        for pinned in product((0, half, component.total_bytes()), repeat=ranks):
            yield offload(component.name, pinned)
            yield offload(component.name, pinned, prefetch=True)
    if mode in (None, "Layerwise") and component.groups:
        for loose in ("Permanent", "Forward") if component.loose_bytes else ("Permanent",):
            for groups in product(*(list(_groups(group, ranks)) for group in component.groups)):
                yield ComponentPlacement(
                    name=component.name,
                    mode="Layerwise",
                    loose_lifetime=loose,
                    groups=groups,  # type: ignore[arg-type]
                )


def _groups(group: Group, ranks: int) -> Iterator[GroupPlacement]:
    layers = len(group.layer_bytes)
    for resident_layers in range(layers + 1):
        for policy in ("Strided", "Leading") if 0 < resident_layers < layers else ("Strided",):
            for lifetime in ("Permanent", "Forward") if resident_layers else ("Permanent",):
                for slots in (2, 3) if resident_layers < layers else (2,):
                    copies = layers if lifetime == "Forward" else layers - resident_layers
                    for pins in product(range(copies + 1), repeat=ranks):
                        yield GroupPlacement(
                            name=group.name,
                            resident_layers=resident_layers,
                            policy=policy,  # type: ignore[arg-type]
                            lifetime=lifetime,  # type: ignore[arg-type]
                            slots=slots,
                            pinned_layers=pins,
                        )
