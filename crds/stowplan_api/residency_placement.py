"""ResidencyPlacement: one pod's placement, its proof, and its history (KUBERNETES.md).

Named after its pod. The operator writes the spec once and it is immutable; the agent in that pod writes the status and
nothing else. Bytes are int64, durations integer milliseconds: no floats in a status.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from stowplan_api.conditions import Condition
from stowplan_api.model import Model
from stowplan_api.placement import Bytes, Count

Text = Annotated[str, Field(max_length=1024)]
Milliseconds = Annotated[int, Field(ge=0)]

Phase = Literal[
    "Pending",
    "Inventory",
    "Load",
    "Warm",
    "Probe",
    "WarmAgain",
    "Solve",
    "Apply",
    "Validate",
    "RollBack",
    "Ready",
    "RolledBack",
    "Failed",
]
"""The start-up phases of RUNTIME.md, in order, and its ends."""


class PodReference(Model):
    """The one pod this object speaks of."""

    name: Text
    uid: Text


class Limits(Model):
    """What the pod may use, as the operator rendered it."""

    memory_bytes: Bytes
    device_memory_bytes: Bytes | None = None


class ResidencyPlacementSpec(Model):
    """Written once by the operator; immutable."""

    deployment: Text
    pod: PodReference
    generation: Annotated[int, Field(ge=1)]
    """The generation of the DiffusionDeployment that this pod was rendered from."""
    limits: Limits


class Agent(Model):
    """Which boot of the agent wrote this."""

    boot_id: Text
    started_at: Text
    version: Text


class PhaseStatus(Model):
    """One phase of this boot. ``milliseconds`` is absent while it runs."""

    name: Phase
    started_at: Text
    milliseconds: Milliseconds | None = None


class RankStatus(Model):
    """One rank's device and what was measured of it."""

    rank: Count
    device: Text
    capacity_bytes: Bytes
    reserve_bytes: Bytes
    peak_bytes: Bytes
    """Highest device use of a validated request, outside bytes included."""
    link_bytes_per_second: Bytes
    pinned_bytes: Bytes


class ComponentStatus(Model):
    """Where one component lives now."""

    name: Text
    mode: Text
    resident_layers: Count
    layers: Count
    device_bytes: Bytes
    pinned_bytes: Bytes
    lifetime: Text


class PlanStatus(Model):
    """What the planner promised."""

    id: Text
    predicted_milliseconds: Milliseconds
    predicted_peak_bytes: Bytes
    explanations: Annotated[tuple[Text, ...], Field(max_length=32)] = ()
    """One line a component: what was chosen, and why."""


class ValidationStatus(Model):
    """What the proof measured."""

    milliseconds: Milliseconds
    reference_milliseconds: Milliseconds
    peak_bytes: Bytes
    bit_equal: bool


class Rollback(Model):
    """One rollback: why, from what to what, and what was measured."""

    time: Text
    reason: Text
    message: Text = ""
    from_: Annotated[Text, Field(alias="from")]
    to: Text
    measured: Text = ""


class ResidencyPlacementStatus(Model):
    """Written by the agent in the pod, phase by phase."""

    observed_generation: Annotated[int, Field(ge=0)] = 0
    agent: Agent | None = None
    phase: Phase = "Pending"
    phases: Annotated[tuple[PhaseStatus, ...], Field(max_length=32)] = ()
    ranks: Annotated[tuple[RankStatus, ...], Field(max_length=64)] = ()
    components: Annotated[tuple[ComponentStatus, ...], Field(max_length=32)] = ()
    resident: Text | None = None
    """Resident layers of all repeated layers, such as 14/24: for the printer column."""
    plan: PlanStatus | None = None
    validation: ValidationStatus | None = None
    rollbacks: Annotated[tuple[Rollback, ...], Field(max_length=10)] = ()
    """The last ten, oldest first."""
    conditions: Annotated[tuple[Condition, ...], Field(max_length=16)] = ()
