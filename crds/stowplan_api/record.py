"""A CalibrationRecord says what was measured (PLANNING.md, section 1).

Bytes are integers, times are seconds, rates are bytes a second. A record is portable: it answers for a card that is
not here, because activations are kept apart from weights.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, StrictBool, model_validator

from stowplan_api.model import API_VERSION, Document, Model
from stowplan_api.placement import Count, Mode, Name
from stowplan_api.quantity import MOST
from stowplan_api.record_names import check_names

Bytes = Annotated[int, Field(ge=0, le=MOST, strict=True)]
"""Bounded far below 2^63, so that a solver's sums over components, ranks and intervals stay exact."""
Seconds = Annotated[float, Field(ge=0, le=1e9, strict=True)]
Rate = Annotated[float, Field(ge=0, le=1e18, strict=True)]
PositiveRate = Annotated[float, Field(ge=1, le=1e18, strict=True)]
"""Below a byte a second, bytes divided by it are no number that can be compared."""
Pixels = Annotated[int, Field(ge=1, le=16384, strict=True)]
Passes = Annotated[int, Field(ge=0, le=10_000_000, strict=True)]


class ModelIdentity(Model):
    """Which model was measured. The fingerprint is enough to reuse a plan, which is then validated; never its bytes."""

    name: Name
    pipeline: Name
    fingerprint: Name


class Workload(Model):
    """A request as it was measured: what changes its passes or its activations."""

    name: Name
    weight: Annotated[float, Field(ge=1e-9, le=1e9, strict=True)] = 1
    width: Pixels
    height: Pixels
    frames: Annotated[int, Field(ge=1, le=100_000, strict=True)] = 1
    steps: Annotated[int, Field(ge=1, le=10_000, strict=True)]
    batch: Annotated[int, Field(ge=1, le=1024, strict=True)] = 1
    guidance: Annotated[float | None, Field(ge=0, le=1000, strict=True)] = None
    flow_shift: Annotated[float | None, Field(ge=0, le=1000, strict=True)] = None
    prompt_tokens: Annotated[int | None, Field(ge=1, le=1_000_000, strict=True)] = None
    input_images: Annotated[int, Field(ge=0, le=64, strict=True)] = 0
    tiling: StrictBool = False
    lora: str | None = None


class Node(Model):
    """Host memory that this replica may use on one node."""

    name: Name
    pinnable_bytes: Bytes
    host_bytes: Bytes


class Link(Model):
    """The host link of one rank, as measured with the engine's own copies."""

    pinned_bytes_per_second: PositiveRate
    pageable_bytes_per_second: PositiveRate
    latency_seconds: Seconds
    contention: Annotated[float, Field(ge=1, le=100, strict=True)]
    """How much slower compute runs while a copy runs."""


class Rank(Model):
    """One process and its device."""

    rank: Count
    node: Name
    device: Name
    peer_bytes_per_second: Rate = 0
    capacity_bytes: Bytes
    """What this process may use: the card less what others hold."""
    outside_bytes: Bytes
    """Context and workspaces outside the allocator."""
    reserve_bytes: Bytes | None = None
    """Replaces the default reserve when present."""
    link: Link


class Fixed(Model):
    """The mode a component must keep, and why."""

    mode: Mode
    reason: Annotated[str, Field(max_length=1024)]


class Group(Model):
    """Repeated layers of a component: packed, aligned bytes, one entry a layer."""

    name: Name
    layer_bytes: Annotated[tuple[Bytes, ...], Field(min_length=1, max_length=4096)]


class Component(Model):
    """One network of the pipeline. Each storage is counted once."""

    name: Name
    loose_bytes: Bytes
    """Weights outside repeated layers."""
    fixed: Fixed | None = None
    groups: Annotated[tuple[Group, ...], Field(max_length=16)] = ()

    def total_bytes(self) -> int:
        """All weight bytes of the component."""
        return self.loose_bytes + sum(sum(group.layer_bytes) for group in self.groups)


class Run(Model):
    """What one workload does in one interval."""

    workload: Name
    passes: Passes
    """Runs over the layers."""
    calls: Passes | None = None
    """Calls of the entry, where that differs from the passes (one ``generate`` makes many passes)."""
    activation_bytes: tuple[Bytes, ...]
    """Measured peak less the weight bytes the ledger held then; one a rank."""
    loose_seconds: Seconds
    """Seconds of a pass outside the layers."""
    layer_seconds: dict[str, tuple[Seconds, ...]] = Field(default_factory=dict)
    """Group name to seconds of each layer, one pass."""


class Interval(Model):
    """A stretch of the request's timeline in which one component runs, or none does."""

    component: Name | None
    entry: Name
    adaptive: StrictBool = False
    """Two probes disagreed on its activations, so it gets the larger reserve."""
    reserve_bytes: Bytes = 0
    """The least reserve here: what the allocator took beside activations while it could. With less room it gives blocks
    back to the driver and takes others in every request."""
    runs: Annotated[tuple[Run, ...], Field(min_length=1)]


class CalibrationRecord(Document):
    """Everything that was measured of one model on one kind of machine."""

    api_version: Literal["stowplan.dev/v1alpha1"] = API_VERSION  # type: ignore[assignment]
    kind: Literal["CalibrationRecord"] = "CalibrationRecord"
    model: ModelIdentity
    provenance: tuple[str, ...] = ()
    extrapolated: StrictBool = False
    """Activations were not measured at the declared shape, so every interval gets the larger reserve."""
    workloads: Annotated[tuple[Workload, ...], Field(min_length=1)]
    nodes: Annotated[tuple[Node, ...], Field(min_length=1)]
    ranks: Annotated[tuple[Rank, ...], Field(min_length=1, max_length=64)]
    components: Annotated[tuple[Component, ...], Field(min_length=1, max_length=32)]
    intervals: Annotated[tuple[Interval, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _names_agree(self) -> Self:
        check_names(self)
        return self

    def component(self, name: str) -> Component:
        """One component by name. Raises KeyError when there is none."""
        for component in self.components:
            if component.name == name:
                return component
        raise KeyError(name)
