"""ResidencyPlacement: one pod's placement, its proof, and its history (KUBERNETES.md).

Named after its pod. The operator writes the spec once and it is immutable; the agent in that pod writes the status and
nothing else. Bytes are int64, durations integer milliseconds: no floats in a status.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field, computed_field

from stowplan_api import rules as rule
from stowplan_api.conditions import Condition
from stowplan_api.markers import keyed_by, rules
from stowplan_api.model import Model
from stowplan_api.placement import Bytes, Count
from stowplan_api.quantity import for_people
from stowplan_api.status import Milliseconds, StatusModel, Text, Timestamp, seconds_for_people

Phase = Literal[
    "Pending",
    "Inventory",
    "Load",
    "Warm",
    "Probe",
    "WarmAgain",
    "Revalidate",
    "Solve",
    "Apply",
    "Validate",
    "RollBack",
    "Ready",
    "RolledBack",
    "Failed",
]
"""The start-up phases of RUNTIME.md, in order, and its ends. Revalidate proves a stored placement without a probe."""


class PodReference(Model):
    """The one pod this object speaks of."""

    name: Text
    """Also the name of this object."""
    uid: Text
    """A new pod of the same name is another pod."""


class Limits(Model):
    """What the pod may use, as the operator rendered it."""

    memory_bytes: Bytes
    """Limit of host memory."""
    device_memory_bytes: Bytes | None = None
    """Ceiling on device memory of each rank."""


class ResidencyPlacementSpec(Model):
    """Written once by the operator; immutable."""

    model_config: ClassVar[ConfigDict] = ConfigDict(json_schema_extra=rules(rule.IMMUTABLE))

    deployment: Text
    """Name of the DiffusionDeployment."""
    pod: PodReference
    generation: Annotated[int, Field(ge=1)]
    """The generation of the DiffusionDeployment that this pod was rendered from."""
    limits: Limits


class Agent(Model):
    """Which boot of the agent wrote this."""

    boot_id: Text
    """Drawn anew by every process."""
    started_at: Timestamp
    """Never before the container's own start, or this is another boot's word."""
    version: Text
    """Version of Stowplan."""
    earlier_boots: Count | None = None
    """Boots of this pod before this one, as counted in the pod; absent where nothing outlives a container to count in.
    Where it equals the restarts of the container, this can be no earlier boot's word, whatever clocks say."""


class PhaseStatus(Model):
    """One phase of this boot. ``milliseconds`` is absent while it runs."""

    name: Phase
    started_at: Timestamp
    milliseconds: Milliseconds | None = None


class RankStatus(Model):
    """One rank's device and what was measured of it."""

    rank: Count
    device: Text
    """Product name."""
    capacity_bytes: Bytes
    """What this process may use of the device."""
    reserve_bytes: Bytes
    """Kept free of what it may use."""
    peak_bytes: Bytes
    """Highest device use of a validated request, outside bytes included."""
    link_bytes_per_second: Bytes
    """Measured rate from pinned host memory to the device."""
    pinned_bytes: Bytes
    """Host memory that this rank has locked."""


class ComponentStatus(Model):
    """Where one component lives now."""

    name: Text
    mode: Text
    """Resident, Offload or Layerwise."""
    resident_layers: Count
    sharded_layers: Count | None = None
    """Layers that lie in shards on the devices of all ranks; absent where none do."""
    layers: Count
    """All repeated layers."""
    device_bytes: Bytes
    pinned_bytes: Bytes
    lifetime: Text
    """Permanent or Forward."""


class PlanStatus(Model):
    """What the planner promised, whether it is in force (then `kept` is absent) or not."""

    id: Text
    """Digest of record, limits and placement."""
    predicted_milliseconds: Milliseconds
    predicted_peak_bytes: Bytes
    """Without the reserve."""
    explanations: Annotated[tuple[Text, ...], Field(max_length=32)] = ()
    """One line a component: what was chosen, and why."""
    kept: Text | None = None
    """What is in force in its stead, and why; absent where the plan itself is."""


class StepStatus(Model):
    """One step at the declared shape that needs most memory, where that is not the default one."""

    shape: Text
    """Its name."""
    peak_bytes: Bytes
    """As measured, outside bytes included."""
    predicted_peak_bytes: Bytes
    """Of a whole request of it; without the reserve."""


class ValidationStatus(Model):
    """What the proof measured."""

    milliseconds: Milliseconds
    """One request of the placement in force."""
    reference_milliseconds: Milliseconds
    """The first request at the same shape."""
    peak_bytes: Bytes
    """Highest device use of any rank in any request of the proof, outside bytes included."""
    bit_equal: bool
    """Whether the output equals the reference output bit for bit."""
    heaviest: StepStatus | None = None


class Rollback(Model):
    """One rollback: why, from what to what, and what was measured."""

    time: Timestamp
    reason: Text
    message: Text = ""
    """What failed, with its numbers."""
    from_: Annotated[Text, Field(alias="from")]
    """The placement that was taken back, in one line."""
    to: Text
    """The placement that serves instead, in one line."""
    measured: Text = ""
    """Seconds, peak and equality of bits, as measured."""


class ResidencyPlacementStatus(StatusModel):
    """Written by the agent in the pod, phase by phase."""

    observed_generation: Annotated[int, Field(ge=0)] = 0
    """Generation of the DiffusionDeployment that this boot was started with."""
    agent: Agent | None = None
    phase: Phase = "Pending"
    """Where this boot is."""
    phases: Annotated[tuple[PhaseStatus, ...], Field(max_length=32)] = ()
    """Phases of this boot, oldest first."""
    ranks: Annotated[tuple[RankStatus, ...], Field(max_length=64, json_schema_extra=keyed_by("rank"))] = ()
    components: Annotated[tuple[ComponentStatus, ...], Field(max_length=32, json_schema_extra=keyed_by("name"))] = ()
    resident: Text | None = None
    """Resident layers of all repeated layers, such as 14/24: for the printer column."""
    plan: PlanStatus | None = None
    validation: ValidationStatus | None = None
    rollbacks: Annotated[tuple[Rollback, ...], Field(max_length=10)] = ()
    """The last ten, oldest first."""
    conditions: Annotated[tuple[Condition, ...], Field(max_length=16, json_schema_extra=keyed_by("type"))] = ()

    @computed_field(description="Highest device use of a validated request of any rank, for people.")  # type: ignore[prop-decorator]
    @property
    def peak(self) -> str | None:
        """``validation.peak_bytes`` for people, for the printer column."""
        return None if self.validation is None else for_people(self.validation.peak_bytes)

    @computed_field(description="Time of the validated request, for people.")  # type: ignore[prop-decorator]
    @property
    def seconds(self) -> str | None:
        """``validation.milliseconds`` for people, for the printer column."""
        return None if self.validation is None else seconds_for_people(self.validation.milliseconds)
