"""DiffusionDeployment: what a user declares, and what the operator says about it (KUBERNETES.md).

Defaults live here and so in the CRD's schema: the API server fills them in, and nothing is ever written back into a
user's spec. Bounds are part of the contract: a list without one would cost the CEL rules their budget.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field

from stowplan_api.conditions import Condition
from stowplan_api.model import Document, Model
from stowplan_api.placement import ComponentPlacement
from stowplan_api.quantity import Quantity

DType = Literal["bfloat16", "float16", "float32"]
Text = Annotated[str, Field(max_length=1024)]
ShapeName = Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$")]


class Object(Document):
    """A Kubernetes object as the API server returns it: unknown fields of newer servers are ignored on reading."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="ignore")


class ModelSource(Model):
    """The checkpoint: where it comes from and in which precision it is loaded."""

    source: Annotated[str, Field(min_length=8, max_length=512)]
    """hf://ORG/NAME, pvc://CLAIM/PATH, or file:///PATH in the serving image."""
    revision: Annotated[str, Field(min_length=1, max_length=128)] = "main"
    """Branch, tag or commit of an hf:// source."""
    dtype: DType = "bfloat16"


class Shape(Model):
    """One request shape to be ready for. The first of the list is the default."""

    name: ShapeName
    width: Annotated[int, Field(ge=16, le=16384)]
    height: Annotated[int, Field(ge=16, le=16384)]
    frames: Annotated[int, Field(ge=1, le=10000)] = 1
    """1 for an image."""
    steps: Annotated[int, Field(ge=1, le=1000)]
    weight: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    """Share of the requests; weights sum to anything."""


class WorkloadSpec(Model):
    """What the deployment will be asked for."""

    shapes: Annotated[tuple[Shape, ...], Field(min_length=1, max_length=16)]


class Resources(Model):
    """What each pod gets. Memory is both request and limit: pinned pages cannot be reclaimed."""

    gpus: Annotated[int, Field(ge=0, le=64)] = 1
    """Devices a pod. 0 runs on the emulated accelerator, for development."""
    gpu_resource: Annotated[str, Field(min_length=1, max_length=128)] = "nvidia.com/gpu"
    cpu: Annotated[int, Field(ge=1, le=1024)] = 1
    memory: Quantity
    device_memory: Quantity | None = None
    """Ceiling on device memory of each rank; required on time-sliced devices; the capacity of an emulated card."""


class Validation(Model):
    """What a placement must prove before it serves."""

    max_slowdown_percent: Annotated[int, Field(ge=0, le=1000)] = 5
    """How much slower than the reference a request may be (or 50 ms, whichever is more)."""
    reproducible: bool = True
    """Whether the output must equal the reference bit for bit."""


class Prefer(Model):
    """Names of components that a user wants kept on the device, or never kept."""

    keep: Annotated[tuple[Annotated[str, Field(max_length=63)], ...], Field(max_length=32)] = ()
    never_keep: Annotated[tuple[Annotated[str, Field(max_length=63)], ...], Field(max_length=32)] = ()


class PinnedPlacement(Model):
    """A placement written by a user, for residency mode Pinned."""

    components: Annotated[tuple[ComponentPlacement, ...], Field(min_length=1, max_length=32)]


class Residency(Model):
    """How the placement is chosen."""

    mode: Literal["Auto", "Static", "Pinned"] = "Auto"
    """Auto measures and plans; Static serves the seed placement; Pinned serves ``placement``."""
    placement: PinnedPlacement | None = None
    device_reserve: Quantity | None = None
    """Device memory kept free; replaces the default of max(2 %, 512 MiB)."""
    host_reserve: Quantity | None = None
    """Host memory kept free of pins and copies."""
    validation: Validation = Validation()
    prefer: Prefer = Prefer()


class EnvVar(Model):
    """A plain environment variable of the serving container."""

    name: Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
    value: Annotated[str, Field(max_length=4096)] = ""


class Serving(Model):
    """The serving container."""

    port: Annotated[int, Field(ge=1024, le=65535)] = 8000
    image: Annotated[str | None, Field(min_length=1, max_length=512)] = None
    """Absent: the agent image that the chart names."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    env: Annotated[tuple[EnvVar, ...], Field(max_length=64)] = ()


class RollingUpdate(Model):
    """How far a rollout may go beyond and below the desired number of pods."""

    max_surge: Annotated[int, Field(ge=0, le=100)] = 0
    max_unavailable: Annotated[int, Field(ge=0, le=100)] = 1


class Rollout(Model):
    """How a new generation replaces the old one."""

    strategy: Literal["Recreate", "RollingUpdate"] = "Recreate"
    rolling_update: RollingUpdate = RollingUpdate()
    progress_deadline_seconds: Annotated[int | None, Field(ge=30, le=86400)] = None
    """Computed from the phases' budget when absent."""


class DiffusionDeploymentSpec(Model):
    """What the user declares: a model, a workload, and what each pod gets."""

    replicas: Annotated[int, Field(ge=0, le=1000)] = 1
    model: ModelSource
    workload: WorkloadSpec
    resources: Resources
    residency: Residency = Residency()
    serving: Serving = Serving()
    rollout: Rollout = Rollout()
    paused: bool = False
    """Stop changing the pods; the gate is kept up all the same."""
    pod_template: Annotated[
        dict[str, Any] | None, Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})
    ] = None
    """A partial pod template, merged by container name; it wins over everything rendered. The server is ``server``."""


class RollbackSummary(Model):
    """The newest rollback of any pod of this deployment."""

    time: Text
    reason: Text
    pod: Text
    from_: Annotated[Text, Field(alias="from")]
    to: Text


class DiffusionDeploymentStatus(Model):
    """What the operator says."""

    observed_generation: Annotated[int, Field(ge=0)] = 0
    replicas: Annotated[int, Field(ge=0)] = 0
    ready_replicas: Annotated[int, Field(ge=0)] = 0
    updated_replicas: Annotated[int, Field(ge=0)] = 0
    validated_replicas: Annotated[int, Field(ge=0)] = 0
    selector: Text = ""
    placement: Annotated[tuple[Text, ...], Field(max_length=32)] = ()
    """One line a component."""
    device: Text | None = None
    peak_bytes: Annotated[int | None, Field(ge=0)] = None
    request_milliseconds: Annotated[int | None, Field(ge=0)] = None
    rollbacks: Annotated[int, Field(ge=0)] = 0
    last_rollback: RollbackSummary | None = None
    conditions: Annotated[tuple[Condition, ...], Field(max_length=16)] = ()
