"""A CalibrationRecord says what was measured (PLANNING.md, section 1).

Bytes are integers, times are seconds, rates are bytes a second. A record is portable: it answers for a card that is
not here, because activations are kept apart from weights.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from stowplan_api.model import API_VERSION, Document, Model
from stowplan_api.placement import Count, Mode, Name
from stowplan_api.quantity import MOST, for_people

Bytes = Annotated[int, Field(ge=0, le=MOST, strict=True)]
"""Bounded far below 2^63, so that a solver's sums over components, ranks and intervals stay exact."""
Seconds = Annotated[float, Field(ge=0, le=1e9)]
Rate = Annotated[float, Field(ge=0, le=1e18)]
PositiveRate = Annotated[float, Field(gt=0, le=1e18)]
Pixels = Annotated[int, Field(ge=1, le=16384)]


class ModelIdentity(Model):
    """Which model was measured. The fingerprint is enough to reuse a plan, which is then validated; never its bytes."""

    name: Name
    pipeline: Name
    fingerprint: Name


class Workload(Model):
    """A request as it was measured: what changes its passes or its activations."""

    name: Name
    weight: Annotated[float, Field(gt=0, le=1e9)] = 1
    width: Pixels
    height: Pixels
    frames: Annotated[int, Field(ge=1, le=100_000)] = 1
    steps: Annotated[int, Field(ge=1, le=10_000)]
    batch: Annotated[int, Field(ge=1, le=1024)] = 1
    guidance: Annotated[float | None, Field(ge=0, le=1000)] = None
    flow_shift: Annotated[float | None, Field(ge=0, le=1000)] = None
    prompt_tokens: Annotated[int | None, Field(ge=1, le=1_000_000)] = None
    input_images: Annotated[int, Field(ge=0, le=64)] = 0
    tiling: bool = False
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
    contention: Annotated[float, Field(ge=1, le=100)]
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
    passes: Annotated[int, Field(ge=0, le=10_000_000)]
    """Runs over the layers."""
    calls: Annotated[int | None, Field(ge=0, le=10_000_000)] = None
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
    adaptive: bool = False
    """Two probes disagreed on its activations, so it gets the larger reserve."""
    runs: Annotated[tuple[Run, ...], Field(min_length=1)]


class CalibrationRecord(Document):
    """Everything that was measured of one model on one kind of machine."""

    api_version: Literal["stowplan.dev/v1alpha1"] = API_VERSION  # type: ignore[assignment]
    kind: Literal["CalibrationRecord"] = "CalibrationRecord"
    model: ModelIdentity
    provenance: tuple[str, ...] = ()
    extrapolated: bool = False
    """Activations were not measured at the declared shape, so every interval gets the larger reserve."""
    workloads: Annotated[tuple[Workload, ...], Field(min_length=1)]
    nodes: Annotated[tuple[Node, ...], Field(min_length=1)]
    ranks: Annotated[tuple[Rank, ...], Field(min_length=1, max_length=64)]
    components: Annotated[tuple[Component, ...], Field(min_length=1, max_length=32)]
    intervals: Annotated[tuple[Interval, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _names_agree(self) -> Self:
        components = {component.name: component for component in self.components}
        workloads = {workload.name for workload in self.workloads}
        nodes = {node.name for node in self.nodes}
        _check_once("component", (component.name for component in self.components))
        _check_once("workload", (workload.name for workload in self.workloads))
        _check_once("node", (node.name for node in self.nodes))
        _check_once("rank", (str(rank.rank) for rank in self.ranks))
        for component in self.components:
            _check_once(f"component {component.name}: group", (group.name for group in component.groups))
            if component.total_bytes() > MOST:
                raise ValueError(f"component {component.name} has more than {for_people(MOST)} of weights")
        for rank in self.ranks:
            if rank.node not in nodes:
                raise ValueError(f"rank {rank.rank} is on node {rank.node}, which nodes does not list")
        for index, interval in enumerate(self.intervals):
            if interval.component is not None and interval.component not in components:
                raise ValueError(
                    f"interval {index} names component {interval.component}, which components does not list"
                )
            _check_once(f"interval {index}: the run of workload", (run.workload for run in interval.runs))
            for run in interval.runs:
                self._check_run(index, interval, run, components, workloads)
            if lacking := workloads - {run.workload for run in interval.runs}:
                raise ValueError(f"interval {index} has no run of workload {min(lacking)}; give 0 passes where none is")
        return self

    def _check_run(
        self, index: int, interval: Interval, run: Run, components: dict[str, Component], workloads: set[str]
    ) -> None:
        where = f"interval {index}, workload {run.workload}"
        if run.workload not in workloads:
            raise ValueError(f"{where}: workloads does not list this workload")
        if len(run.activation_bytes) != len(self.ranks):
            raise ValueError(f"{where}: {len(run.activation_bytes)} activationBytes for {len(self.ranks)} ranks")
        groups = {group.name: group for group in components[interval.component].groups} if interval.component else {}
        for name, seconds in run.layer_seconds.items():
            if name not in groups:
                raise ValueError(
                    f"{where}: layerSeconds names group {name}, which component {interval.component} lacks"
                )
            if len(seconds) != len(groups[name].layer_bytes):
                raise ValueError(
                    f"{where}: {len(seconds)} layerSeconds for {len(groups[name].layer_bytes)} layers of {name}"
                )

    def component(self, name: str) -> Component:
        """One component by name. Raises KeyError when there is none."""
        for component in self.components:
            if component.name == name:
                return component
        raise KeyError(name)


def _check_once(what: str, names: Iterable[str]) -> None:
    """Each counts once: what is listed twice would be priced twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"{what} {name} is listed twice; list each once")
        seen.add(name)
