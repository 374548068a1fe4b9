"""A Plan is the planner's answer: a placement with its price, its proof and its reasons (PLANNING.md, section 5)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from stowplan_api.model import API_VERSION, Document, Model
from stowplan_api.placement import ComponentPlacement, Placement


class Violation(Model):
    """One limit that a placement breaks, in numbers."""

    constraint: Literal["device", "pinned", "host", "entry"]
    interval: int | None = None
    entry: str | None = None
    """Name of the interval for people: its component and entry."""
    rank: int | None = None
    node: str | None = None
    component: str | None = None
    short_bytes: int = 0
    """Bytes above the limit; 0 for an entry that is not allowed at all."""
    message: str


class Cost(Model):
    """The price of one placement: bytes of every interval and node, seconds of one request."""

    feasible: bool
    seconds: float
    """One request, averaged over workloads by weight."""
    workload_seconds: Annotated[dict[str, float], Field(exclude_if=lambda value: len(value) < 2)] = Field(
        default_factory=dict
    )
    """One request of each workload; absent where there is only one."""
    device_bytes: tuple[tuple[int, ...], ...]
    """Interval by rank, without the reserve."""
    locked_bytes: dict[str, int]
    host_bytes: dict[str, int]
    violations: tuple[Violation, ...] = ()


Constraint = Literal["device", "pinned", "host", "moves", "fixed"]
"""What kept a better option away: a limit of memory, the order of moves, or a mode that the component must keep."""


class Explanation(Model):
    """Why one component is where it is: in words, and the same in fields. All other components are as placed."""

    component: str
    chosen: str
    chosen_entry: ComponentPlacement | None = None
    lost: str | None = None
    """The best option it lost, if any: of those that are faster the one that is short of the fewest bytes, or, where
    none is faster, the next slower one. An Offload counts with all of it pinned: with any pins at all, the nearest one
    would always be a byte away."""
    lost_entry: ComponentPlacement | None = None
    because: str
    """The constraint that forbade it (interval, rank, bytes short) or the seconds it would have cost."""
    constraint: Constraint | None = None
    """What forbade the lost option; null where it fits and is slower."""
    interval: int | None = None
    """Index of the interval that would be short of device memory."""
    interval_name: str | None = None
    rank: int | None = None
    node: str | None = None
    """Node that would be short of host memory, or of memory that can be pinned."""
    short_bytes: int | None = None
    seconds: float | None = None
    """What a request would take more with the lost option; less than 0 for what it would save."""


class Move(Model):
    """One component's change from its current entry to its target."""

    component: str
    from_: Annotated[ComponentPlacement | None, Field(alias="from")] = None
    to: ComponentPlacement


class Worth(Model):
    """Seconds of a request that one more GiB would save; 0 when nothing is gained, null when unknown."""

    device_seconds_per_gib: float | None = None
    host_seconds_per_gib: float | None = None


class Change(Model):
    """The smallest change of one kind under which a placement exists: with a byte less none does."""

    what: Literal["deviceMemory", "hostMemory", "shape", "workloads"]
    needed_bytes: int | None = None
    """Device memory of every rank, host memory of every node, or the most that activations of any interval may be."""
    also_host_bytes: int | None = None
    """Host memory that every node needs together with this much device memory; null where there is enough."""
    interval: int | None = None
    """Index of the interval with the largest activations, for a smaller shape."""
    interval_name: str | None = None
    rank: int | None = None
    workloads: tuple[str, ...] = ()
    """Workloads that fit together as they are; with any other one they do not."""
    message: str


class Plan(Document):
    """The answer to: where should the weights of this record live?"""

    api_version: Literal["stowplan.dev/v1alpha1"] = API_VERSION  # type: ignore[assignment]
    kind: Literal["Plan"] = "Plan"
    id: str
    """Digest of record, limits and placement: the same plan has the same id anywhere."""
    status: Literal["Optimal", "Infeasible"]
    placement: Placement | None = None
    cost: Cost | None = None
    proof: dict[str, Any] = Field(default_factory=dict)
    """How optimality is known: the solver, its bound, and the space that it is exact over."""
    explanations: tuple[Explanation, ...] = ()
    worth: Worth | None = None
    moves: tuple[Move, ...] = ()
    shortfalls: tuple[Violation, ...] = ()
    """When infeasible: the intervals that are short, most first."""
    would_fit: tuple[Change, ...] = ()
    current_seconds: Annotated[float | None, Field(exclude_if=lambda value: value is None)] = None
    """One request with the current placement, where one was given."""
    saved_seconds: Annotated[float | None, Field(exclude_if=lambda value: value is None)] = None
    """What the moves save of it."""
    estimate: Annotated[str | None, Field(exclude_if=lambda value: value is None)] = None
    """Present where the record was estimated, not measured: the sentence that says so."""
