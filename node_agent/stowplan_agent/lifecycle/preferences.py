"""What a user wants of single components: names are checked before anything is loaded, wishes become fixed modes."""

from __future__ import annotations

from collections.abc import Sequence

from stowplan_agent.lifecycle.errors import StartError
from stowplan_api.contract import PlacementReason
from stowplan_api.diffusion_deployment import Prefer, Residency
from stowplan_api.record import CalibrationRecord, Component, Fixed


def check_names(residency: Residency, known: Sequence[str], pipeline: str) -> None:
    """Refuse component names that the pipeline lacks, and a pinned placement that leaves one out.

    Raises `StartError` naming the field, the component, and what there is.
    """
    has = f"{pipeline} has {', '.join(known)}"
    for name in (*residency.prefer.keep, *residency.prefer.never_keep):
        if name not in known:
            raise StartError(PlacementReason.SPEC_INVALID, f"residency.prefer names component {name}, and {has}")
    if residency.mode != "Pinned" or residency.placement is None:
        return
    named = [entry.name for entry in residency.placement.components]
    for name in named:
        if name not in known:
            raise StartError(PlacementReason.SPEC_INVALID, f"residency.placement names component {name}, and {has}")
    for name in known:
        if name not in named:
            message = f"residency.placement has no entry for component {name}; give every component one: {has}"
            raise StartError(PlacementReason.SPEC_INVALID, message)


def check_fixed(prefer: Prefer, components: Sequence[Component]) -> None:
    """Refuse never to keep what can only be kept. Raises `StartError` with the reason that it has."""
    for part in components:
        if part.fixed is not None and part.fixed.mode == "Resident" and part.name in prefer.never_keep:
            raise StartError(
                PlacementReason.SPEC_INVALID,
                f"residency.prefer.neverKeep names component {part.name}, which can only be Resident: "
                f"{part.fixed.reason}",
            )


def with_preferences(record: CalibrationRecord, prefer: Prefer, *, keep: bool) -> CalibrationRecord:
    """The record with components fixed as preferred; without ``keep``, only those that are never to be kept.

    What the engine cannot move stays fixed as it is.
    """
    fixed = {name: Fixed(mode="Offload", reason="residency.prefer.neverKeep") for name in prefer.never_keep}
    if keep:
        fixed |= {name: Fixed(mode="Resident", reason="residency.prefer.keep") for name in prefer.keep}
    components = tuple(
        part.model_copy(update={"fixed": part.fixed or fixed.get(part.name)}) for part in record.components
    )
    return record.model_copy(update={"components": components})
