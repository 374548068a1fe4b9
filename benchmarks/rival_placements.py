"""Placements that a planner might have chosen instead: what `regret.py` measures its answer against.

They differ in what a Wan pipeline's denoiser, encoder and VAE each do: what stays, what streams and through how many
slots, what visits, and what is locked. Each fits the card by the record's account; where a rival is said to keep the
most, no layer more of its denoiser would fit. After them come neighbours of the plan, nearest first, for as long as
there is time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from stowplan_agent.planning import cost
from stowplan_api.placement import ComponentPlacement, Lifetime, Placement, Policy
from stowplan_api.placement import GroupPlacement as Group
from stowplan_api.record import CalibrationRecord, Component

DENOISER, ENCODER, VAE = "transformer", "text_encoder", "vae"
NEAREST = 4
"""Neighbours of the plan that come before all others: one layer more or less of denoiser and encoder."""
Entry = Callable[[Component], ComponentPlacement]


def rivals(record: CalibrationRecord, plan: Placement) -> Iterator[tuple[str, Placement]]:
    """Names and placements, no two of them alike and none like the plan."""
    known = {same(record, plan)}
    near = list(_neighbours(record, plan))
    for name, placement in (*near[:NEAREST], *_named(record), *near[NEAREST:]):
        if placement is None or (key := same(record, placement)) in known:
            continue
        known.add(key)
        if cost(record, placement).feasible:
            yield name, placement


def same(record: CalibrationRecord, placement: Placement) -> str:
    """A key: equal for placements that put the same bytes in the same places. Of no other use."""
    return "|".join(sorted(_spelled(record.component(entry.name), entry) for entry in placement.components))


def resident(part: Component) -> ComponentPlacement:
    return ComponentPlacement(name=part.name, mode="Resident")


def visiting(part: Component, *, prefetch: bool = False) -> ComponentPlacement:
    """Off the device but in its own intervals, all of it locked."""
    return ComponentPlacement(
        name=part.name, mode="Offload", prefetch=prefetch, pinned_bytes=(part.total_bytes(),)
    )  # fmt: skip


def streamed(
    part: Component,
    kept: int,
    *,
    policy: Policy = "Strided",
    slots: int = 2,
    lifetime: Lifetime = "Permanent",
    locked: float = 1.0,
) -> ComponentPlacement:
    """``kept`` layers of its group resident; of those with a host copy the share ``locked`` is locked."""
    (group,) = part.groups
    layers = len(group.layer_bytes)
    copied = layers if lifetime == "Forward" else layers - kept
    entry = Group(
        name=group.name, resident_layers=kept, policy=policy, lifetime=lifetime, slots=slots,
        pinned_layers=(int(locked * copied),),
    )  # fmt: skip
    return ComponentPlacement(name=part.name, mode="Layerwise", loose_lifetime=lifetime, groups=(entry,))


def most(record: CalibrationRecord, encoder: Entry, vae: Entry, **stream: Any) -> Placement | None:
    """As many layers of the denoiser as fit beside the others; None where not even none of them does."""
    part = record.component(DENOISER)
    found, low, high = None, 0, layers_of(part)
    while low <= high:
        kept = (low + high) // 2
        tried = together(record, lambda part, kept=kept: streamed(part, kept, **stream), encoder, vae)
        if cost(record, tried).feasible:
            found, low = tried, kept + 1
        else:
            high = kept - 1
    return found


def together(record: CalibrationRecord, denoiser: Entry, encoder: Entry, vae: Entry) -> Placement:
    """The placement of three entries, in the order of the record."""
    entries = {DENOISER: denoiser, ENCODER: encoder, VAE: vae}
    return Placement(components=tuple(entries[part.name](part) for part in record.components))


def layers_of(part: Component) -> int:
    """Layers of its one group."""
    (group,) = part.groups
    return len(group.layer_bytes)


def _named(record: CalibrationRecord) -> Iterator[tuple[str, Placement | None]]:
    def share(of: float, **fields: Any) -> Entry:
        return lambda part: streamed(part, round(of * layers_of(part)), **fields)

    def early(part: Component) -> ComponentPlacement:
        return visiting(part, prefetch=True)

    half, none = share(0.5), share(0.0)
    yield "most, strided", most(record, none, resident)
    yield "most, strided, encoder and VAE visit", most(record, visiting, visiting)
    yield "most, leading, encoder visits early", most(record, early, resident, policy="Leading", slots=3)
    yield "most, strided, VAE visits early", most(record, half, early, slots=3)
    yield "most, strided, encoder resident", most(record, resident, resident)
    yield "most, leading, three slots, encoder half", most(record, half, resident, policy="Leading", slots=3)
    yield "half, encoder half", together(record, half, half, resident)
    yield "denoiser resident, VAE visits", together(record, resident, half, visiting)
    yield "denoiser resident, encoder visits early", together(record, resident, early, resident)
    yield "most, half locked", most(record, none, resident, locked=0.5)
    yield "all streamed", together(record, none, none, visiting)
    yield "three quarters, leading, encoder half", together(record, share(0.75, policy="Leading"), half, resident)
    yield "a quarter, encoder resident", together(record, share(0.25, slots=3), resident, resident)
    yield "most, forward", most(record, none, visiting, lifetime="Forward", policy="Leading")
    yield "most, strided, three slots", most(record, none, resident, slots=3)
    yield "most, leading", most(record, none, resident, policy="Leading")
    yield "denoiser visits", together(record, visiting, none, resident)
    yield "a quarter, leading", together(record, share(0.25, policy="Leading", slots=3), none, resident)


def _neighbours(record: CalibrationRecord, plan: Placement) -> Iterator[tuple[str, Placement]]:
    """A few layers of the denoiser fewer or more, and the same for the encoder, all else as planned."""
    for step in (1, 2, 3, 4, 6, 8):
        for name in (DENOISER, ENCODER):
            part, entry = record.component(name), plan.entry(name)
            group = entry.groups[0] if entry.groups else None
            kept = group.resident_layers if group else layers_of(part)
            for other in (kept - step, kept + step):
                if not 0 <= other <= layers_of(part):
                    continue
                fields: dict[str, Any] = {"policy": group.policy, "slots": group.slots} if group else {}
                moved = streamed(part, other, **fields)
                entries = tuple(moved if one.name == name else one for one in plan.components)
                yield f"plan, {name} {other - kept:+d}", plan.model_copy(update={"components": entries})


def _spelled(part: Component, entry: ComponentPlacement) -> str:
    whole = entry.groups and all(group.lifetime == "Permanent" for group in entry.groups)
    if whole and all(
        group.resident_layers == len(known.layer_bytes)
        for group, known in zip(entry.groups or (), part.groups, strict=True)
    ):
        entry = resident(part)
    return entry.model_dump_json()
