"""What the status says of ranks, components and plans: pure functions from values to the contract's status types."""

from __future__ import annotations

from stowplan_agent.weights import Ledger
from stowplan_agent.weights.ledger import Tier
from stowplan_api.conditions import shorten
from stowplan_api.placement import ComponentPlacement, Placement
from stowplan_api.plan import Plan
from stowplan_api.quantity import for_people
from stowplan_api.record import CalibrationRecord, Component
from stowplan_api.residency_placement import ComponentStatus, PlanStatus, RankStatus


def summary(placement: Placement) -> str:
    """One line for people: text_encoder Offload, transformer Layerwise 6 resident, vae Resident."""
    return ", ".join(f"{entry.name} {mode_text(entry)}" for entry in placement.components)


def mode_text(entry: ComponentPlacement) -> str:
    """A component's entry in a few words."""
    if entry.mode != "Layerwise":
        return entry.mode
    groups = entry.groups or ()
    words = f"Layerwise {'+'.join(str(group.resident_layers) for group in groups)} resident"
    if any(group.sharded_layers for group in groups):
        words += f", {'+'.join(str(group.sharded_layers or 0) for group in groups)} sharded"
    return words


def component_status(component: Component, entry: ComponentPlacement, ledger: Ledger) -> ComponentStatus:
    """Where one component lives now, bytes from the ledger."""
    layers = sum(len(group.layer_bytes) for group in component.groups)
    groups = entry.groups or ()
    resident = sum(group.resident_layers for group in groups) if groups else layers if entry.mode == "Resident" else 0
    lifetimes = {group.lifetime for group in groups if group.resident_layers or group.sharded_layers}
    if entry.mode == "Resident":
        lifetimes = {"Permanent"}
    elif entry.mode == "Offload":
        lifetimes = {"Forward"}
    return ComponentStatus(
        name=component.name,
        mode=entry.mode,
        resident_layers=resident,
        sharded_layers=sum(group.sharded_layers or 0 for group in groups) or None,
        layers=layers,
        device_bytes=ledger.held(component.name, Tier.DEVICE),
        pinned_bytes=ledger.held(component.name, Tier.PINNED),
        lifetime="+".join(sorted(lifetimes)) or (entry.loose_lifetime or "Permanent"),
    )


def resident_text(components: tuple[ComponentStatus, ...]) -> str:
    """Resident layers of all repeated layers, such as 14/24."""
    return f"{sum(part.resident_layers for part in components)}/{sum(part.layers for part in components)}"


def rank_status(
    record: CalibrationRecord, reserve_bytes: int, peak_bytes: int, ledger: Ledger, number: int = 0
) -> RankStatus:
    """One rank's device, as measured."""
    rank = record.ranks[number]
    return RankStatus(
        rank=rank.rank,
        device=rank.device,
        capacity_bytes=rank.capacity_bytes,
        reserve_bytes=reserve_bytes,
        peak_bytes=peak_bytes,
        link_bytes_per_second=round(rank.link.pinned_bytes_per_second),
        pinned_bytes=ledger.total(Tier.PINNED),
    )


def plan_status(plan: Plan, *, kept: str = "") -> PlanStatus:
    """What the planner promised, and why; ``kept``: what is in force in the plan's stead, and why, if anything is."""
    assert plan.cost is not None
    return PlanStatus(
        id=plan.id,
        predicted_milliseconds=round(plan.cost.seconds * 1000),
        predicted_peak_bytes=max(max(ranks) for ranks in plan.cost.device_bytes),
        explanations=tuple(
            shorten(f"{reason.component}: {reason.chosen}; {reason.because}") for reason in plan.explanations
        ),
        kept=shorten(kept) if kept else None,
    )


def infeasible_text(plan: Plan) -> str:
    """Which interval is how many bytes short, and what would fit."""
    short = "; ".join(violation.message for violation in plan.shortfalls[:3])
    fits = "; ".join(change.message for change in plan.would_fit[:3])
    return f"no placement fits: {short}" + (f"; would fit: {fits}" if fits else "")


def bytes_text(measured_peak: int, seconds: float | None) -> str:
    """What a validation measured, for a rollback's record."""
    return f"peak {for_people(measured_peak)}" + ("" if seconds is None else f", {seconds:.3f} s a request")
