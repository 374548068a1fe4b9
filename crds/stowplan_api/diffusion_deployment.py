"""DiffusionDeployment: what a user declares, and what the operator says about it (KUBERNETES.md).

Defaults live here and so in the CRD's schema: the API server fills them in, and nothing is ever written back into a
user's spec. Bounds are part of the contract: a list without one would cost the CEL rules their budget.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import ConfigDict, Field, computed_field

from stowplan_api import rules as rule
from stowplan_api.conditions import Condition
from stowplan_api.markers import PRESERVE_UNKNOWN, SET, keyed_by, rules
from stowplan_api.model import Model
from stowplan_api.placement import ComponentPlacement
from stowplan_api.quantity import PositiveQuantity, Quantity, for_people
from stowplan_api.status import Milliseconds, StatusModel, Text, Timestamp, seconds_for_people

UNSEEN: Final = -1
"""``observedGeneration`` of a status that no operator wrote: no generation of any object."""
DType = Literal["bfloat16", "float16", "float32"]
ComponentNames = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=63)], ...], Field(max_length=32, json_schema_extra=SET)
]
ShapeName = Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$")]


class ModelSource(Model):
    """The checkpoint: where it comes from and in which precision it is loaded."""

    source: Annotated[str, Field(min_length=1, max_length=512, json_schema_extra=rules(rule.SOURCE))]
    """hf://ORG/NAME, pvc://CLAIM/PATH, or file:///PATH in the serving image."""
    revision: Annotated[str, Field(min_length=1, max_length=128)] = "main"
    """Branch, tag or commit of an hf:// source."""
    dtype: DType = "bfloat16"
    """Precision in which the weights are loaded: bfloat16, float16 or float32."""


class Shape(Model):
    """One request shape to be ready for. The first of the list is the default."""

    name: ShapeName
    """Unique in the list."""
    width: Annotated[int, Field(ge=16, le=16384)]
    """Pixels."""
    height: Annotated[int, Field(ge=16, le=16384)]
    """Pixels."""
    frames: Annotated[int, Field(ge=1, le=10000)] = 1
    """Frames of the video; 1 for an image."""
    steps: Annotated[int, Field(ge=1, le=1000)]
    """Denoising steps."""
    weight: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    """Share of the requests; weights sum to anything."""


class WorkloadSpec(Model):
    """What the deployment will be asked for."""

    model_config: ClassVar[ConfigDict] = ConfigDict(json_schema_extra=rules(rule.SHAPES))

    shapes: Annotated[tuple[Shape, ...], Field(min_length=1, max_length=16, json_schema_extra=keyed_by("name"))]
    """Request shapes to be ready for; the first is the default."""


class Resources(Model):
    """What each pod gets. Memory is both request and limit: pinned pages cannot be reclaimed."""

    model_config: ClassVar[ConfigDict] = ConfigDict(json_schema_extra=rules(rule.EMULATED, rule.SHARED_DEVICE))

    gpus: Annotated[int, Field(ge=0, le=64)] = 1
    """Devices a pod. 0 runs on the emulated accelerator, for development."""
    gpu_resource: Annotated[str, Field(min_length=1, max_length=128)] = "nvidia.com/gpu"
    """Extended resource that a device is asked for by."""
    cpu: Annotated[int, Field(ge=1, le=1024)] = 1
    """Cores a pod."""
    memory: PositiveQuantity
    """Host memory a pod, for pins, host copies and shared memory as well."""
    device_memory: PositiveQuantity | None = None
    """Ceiling on device memory of each rank; shared (time-sliced, MPS) devices need it; an emulated card's capacity."""


class Parallelism(Model):
    """How the devices of a pod share one request: each has a part of the sequence of tokens."""

    ulysses: Annotated[int, Field(ge=1, le=64)] = 1
    """Devices that exchange heads of attention; must divide the number of heads."""
    ring: Annotated[int, Field(ge=1, le=64)] = 1
    """Devices that pass on keys and values."""


class Validation(Model):
    """What a placement must prove before it serves."""

    max_slowdown_percent: Annotated[int, Field(ge=0, le=1000)] = 5
    """How much slower than the reference a request may be (or 50 ms, whichever is more)."""
    reproducible: bool = True
    """Whether the output must equal the reference bit for bit."""


class Prefer(Model):
    """Names of components that a user wants kept on the device, or never kept."""

    model_config: ClassVar[ConfigDict] = ConfigDict(json_schema_extra=rules(rule.PREFER))

    keep: ComponentNames = ()
    """Kept on the device wherever a placement that does so fits."""
    never_keep: ComponentNames = ()
    """Never kept on the device."""


class PinnedPlacement(Model):
    """A placement written by a user, for residency mode Pinned."""

    model_config: ClassVar[ConfigDict] = ConfigDict(json_schema_extra=rules(*rule.PINNED_COMPONENTS))

    components: Annotated[
        tuple[ComponentPlacement, ...], Field(min_length=1, max_length=32, json_schema_extra=keyed_by("name"))
    ]
    """One entry for every component of the pipeline."""


class Residency(Model):
    """How the placement is chosen."""

    model_config: ClassVar[ConfigDict] = ConfigDict(json_schema_extra=rules(*rule.PINNED_MODE))

    mode: Literal["Auto", "Static", "Pinned"] = "Auto"
    """Auto measures and plans; Static serves the seed placement; Pinned serves ``placement``."""
    placement: PinnedPlacement | None = None
    """The placement of mode Pinned; it is validated like any other."""
    device_reserve: Quantity | None = None
    """Device memory kept free; replaces the default of max(2 %, 512 MiB)."""
    host_reserve: Quantity | None = None
    """Host memory kept free of pins and copies."""
    validation: Validation = Validation()
    prefer: Prefer = Prefer()


class EnvVar(Model):
    """A plain environment variable of the serving container."""

    name: Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
    """Unique in the list."""
    value: Annotated[str, Field(max_length=4096)] = ""
    """Taken as it is."""


class Serving(Model):
    """The serving container."""

    model_config: ClassVar[ConfigDict] = ConfigDict(json_schema_extra=rules(rule.ENV))

    port: Annotated[int, Field(ge=1024, le=65535)] = 8000
    """Port of the HTTP API in the pod and at the Service."""
    image: Annotated[str | None, Field(min_length=1, max_length=512)] = None
    """Absent: the agent image that the chart names."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    """Absent: what the chart says, else Kubernetes' own default."""
    env: Annotated[tuple[EnvVar, ...], Field(max_length=64, json_schema_extra=keyed_by("name"))] = ()
    """Further variables of the server container."""


class RollingUpdate(Model):
    """How far a rollout may go beyond and below the desired number of pods."""

    model_config: ClassVar[ConfigDict] = ConfigDict(json_schema_extra=rules(rule.ROLLING_UPDATE))

    max_surge: Annotated[int, Field(ge=0, le=100)] = 0
    """Pods above replicas; each needs free devices."""
    max_unavailable: Annotated[int, Field(ge=0, le=100)] = 1
    """Pods below replicas."""


class Rollout(Model):
    """How a new generation replaces the old one."""

    strategy: Literal["Recreate", "RollingUpdate"] = "Recreate"
    """Recreate ends all old pods first, which needs no spare device."""
    rolling_update: RollingUpdate = RollingUpdate()
    """Used by strategy RollingUpdate."""
    progress_deadline_seconds: Annotated[int | None, Field(ge=30, le=86400)] = None
    """Computed from the phases' budget when absent."""


class DiffusionDeploymentSpec(Model):
    """What the user declares: a model, a workload, and what each pod gets."""

    model_config: ClassVar[ConfigDict] = ConfigDict(json_schema_extra=rules(rule.PARALLELISM))

    replicas: Annotated[int, Field(ge=0, le=1000)] = 1
    """Pods wanted; kubectl scale and an autoscaler write it too."""
    model: ModelSource
    workload: WorkloadSpec
    resources: Resources
    parallelism: Parallelism | None = None
    """Absent: chosen by the model. With gpus 0, ulysses times ring is the number of emulated cards."""
    residency: Residency = Residency()
    serving: Serving = Serving()
    rollout: Rollout = Rollout()
    paused: bool = False
    """Stop changing the pods; the gate is kept up all the same."""
    pod_template: Annotated[dict[str, Any] | None, Field(json_schema_extra=PRESERVE_UNKNOWN)] = None
    """A partial pod template, merged by container name; it wins over everything rendered. The server is ``server``."""

    @property
    def ranks(self) -> int:
        """Devices of a pod, each with a process of its own; emulated cards where it has no GPU."""
        if self.resources.gpus:
            return self.resources.gpus
        return 1 if self.parallelism is None else self.parallelism.ulysses * self.parallelism.ring


class RollbackSummary(Model):
    """The newest rollback of any pod of this deployment."""

    time: Timestamp
    reason: Text
    pod: Text
    from_: Annotated[Text, Field(alias="from")]
    """The placement that was taken back, in one line."""
    to: Text
    """The placement that serves instead, in one line."""


class CountedRollback(Model):
    """How far the rollbacks of one pod are counted: what makes a rollback seen twice count once."""

    pod: Text
    time: Timestamp
    """Of the newest of its rollbacks that is in ``rollbacks``."""


class DiffusionDeploymentStatus(StatusModel):
    """What the operator says."""

    observed_generation: Annotated[int, Field(ge=UNSEEN)] = 0
    """The generation that everything below speaks of; -1 until the operator has seen the object."""
    replicas: Annotated[int, Field(ge=0)] = 0
    """Pods that exist."""
    ready_replicas: Annotated[int, Field(ge=0)] = 0
    """Pods that are Ready."""
    updated_replicas: Annotated[int, Field(ge=0)] = 0
    """Pods of the newest template."""
    validated_replicas: Annotated[int, Field(ge=0)] = 0
    """Pods whose gate is open."""
    selector: Text = ""
    """Label selector of the pods, for the scale subresource."""
    placement: Annotated[tuple[Text, ...], Field(max_length=32)] = ()
    """One line a component."""
    device: Text | None = None
    """Product name of the devices."""
    peak_bytes: Annotated[int | None, Field(ge=0)] = None
    """Highest device use of a validated request of any pod."""
    request_milliseconds: Milliseconds | None = None
    """Time of one request at the default shape, as validated last, by a pod that may be gone."""
    rollbacks: Annotated[int, Field(ge=0)] = 0
    """Rollbacks so far, those of pods that are gone included."""
    counted_rollbacks: Annotated[
        tuple[CountedRollback, ...], Field(max_length=128, json_schema_extra=keyed_by("pod"))
    ] = ()
    """Pods that exist and have rolled back, and how far theirs are counted."""
    last_rollback: RollbackSummary | None = None
    recalibrated: Text | None = None
    """Value of the annotation stowplan.dev/recalibrate for which every pod has measured and validated anew."""
    conditions: Annotated[tuple[Condition, ...], Field(max_length=16, json_schema_extra=keyed_by("type"))] = ()

    @computed_field(description="peakBytes for people.")  # type: ignore[prop-decorator]
    @property
    def peak(self) -> str | None:
        """``peak_bytes`` for people, for the printer column."""
        return None if self.peak_bytes is None else for_people(self.peak_bytes)

    @computed_field(description="requestMilliseconds for people.")  # type: ignore[prop-decorator]
    @property
    def seconds(self) -> str | None:
        """``request_milliseconds`` for people, for the printer column."""
        return None if self.request_milliseconds is None else seconds_for_people(self.request_milliseconds)
