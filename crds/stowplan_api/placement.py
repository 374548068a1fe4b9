"""A Placement says, in absolute terms, where every weight lives (PLANNING.md, section 2).

Never a delta: what must move is the current placement against the target, by subtraction, so that applying one twice
changes nothing.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, StrictBool, model_validator

from stowplan_api.model import API_VERSION, Document, FieldError, Model

Lifetime = Literal["Permanent", "Forward"]
"""Permanent: placed once, never released. Forward: held in the component's own intervals only."""
Policy = Literal["Strided", "Leading"]
"""Which layers are resident: Strided spreads the streamed ones evenly, Leading keeps the first ones."""
Mode = Literal["Resident", "Offload", "Layerwise"]


def _one_line(text: str) -> str:
    if not text.isprintable():
        raise ValueError("a name is one line of printable characters")
    return text


Name = Annotated[str, Field(min_length=1, max_length=253), AfterValidator(_one_line)]
Count = Annotated[int, Field(ge=0, le=1 << 20, strict=True)]
Bytes = Annotated[int, Field(ge=0, le=(1 << 63) - 1, strict=True)]


def streamed_layers(layers: int, resident: int, policy: Policy) -> tuple[int, ...]:
    """Which of ``layers`` layers are streamed, in running order, when ``resident`` of them are resident.

    PLANNING.md, section 3: of n layers s = n - r are streamed; Strided takes floor((j+1) n / s) - 1 for j = 0..s-1, so
    that copies are spread evenly over a pass, and Leading takes the last s. The planner and the weights engine both
    use this function. Raises ValueError when ``resident`` is not from 0 to ``layers``.
    """
    if not 0 <= resident <= layers:
        raise ValueError(f"{resident} resident layers of a group of {layers}; give 0 to {layers}")
    streamed = layers - resident
    if policy == "Leading":
        return tuple(range(resident, layers))
    return tuple((j + 1) * layers // streamed - 1 for j in range(streamed))


def sharded_layers(layers: int, resident: int, sharded: int, policy: Policy) -> tuple[int, ...]:
    """Which of ``layers`` layers are sharded over the ranks, in running order (PLANNING.md, section 6).

    The host's link is the slowest, so what it brings is placed first: `streamed_layers` of ``resident + sharded``. Of
    the layers left, which some device holds, the sharded ones are taken by the same rule. The planner and the weights
    engine both use this function. Raises ValueError when ``resident + sharded`` is not from 0 to ``layers``.
    """
    streamed = set(streamed_layers(layers, resident + sharded, policy))
    held = [index for index in range(layers) if index not in streamed]
    return tuple(held[index] for index in streamed_layers(len(held), resident, policy))


class GroupPlacement(Model):
    """Where the layers of one group live: a resident set, and a ring of ``slots`` buffers for the rest."""

    name: Name
    resident_layers: Count
    policy: Policy = "Strided"
    lifetime: Lifetime = "Permanent"
    slots: Annotated[int, Field(ge=2, le=3, strict=True)] = 2
    pinned_layers: Annotated[tuple[Count, ...], Field(max_length=64)]
    """Of the layers that keep a host copy, how many are pinned: streamed layers first, in running order; one a rank."""
    sharded_layers: Annotated[Count | None, Field(exclude_if=lambda value: value is None)] = None
    """Layers sharded over the ranks (`sharded_layers` says which), beside the resident ones; what is left is streamed.

    Absent with one rank or without peer access.
    """


class ComponentPlacement(Model):
    """One component's entry. The mode decides which other fields may be set."""

    name: Name
    mode: Mode
    prefetch: Annotated[StrictBool | None, Field(exclude_if=lambda value: value is None)] = None
    pinned_bytes: Annotated[tuple[Bytes, ...] | None, Field(max_length=64, exclude_if=lambda value: value is None)] = (
        None
    )
    loose_lifetime: Annotated[Lifetime | None, Field(exclude_if=lambda value: value is None)] = None
    groups: Annotated[
        tuple[GroupPlacement, ...] | None, Field(max_length=16, exclude_if=lambda value: value is None)
    ] = None

    @model_validator(mode="after")
    def _fields_of_the_mode(self) -> Self:
        allowed = {"groups": "Layerwise", "looseLifetime": "Layerwise", "prefetch": "Offload", "pinnedBytes": "Offload"}
        given = (self.groups or None, self.loose_lifetime, self.prefetch, self.pinned_bytes)
        for (field, mode), value in zip(allowed.items(), given, strict=True):
            if value is not None and self.mode != mode:
                raise FieldError([field], f"component {self.name}: {field} belongs to mode {mode}, not {self.mode}")
        if self.mode == "Layerwise" and not self.groups:
            raise FieldError(["groups"], f"component {self.name}: mode Layerwise needs at least one group of layers")
        names = [group.name for group in self.groups or ()]
        for index, name in enumerate(names):
            if name in names[:index]:
                message = f"component {self.name}: group {name} is listed twice; give each group one entry"
                raise FieldError(["groups", index, "name"], message)
        return self


class Placement(Document):
    """Where every weight of every component of a record lives."""

    api_version: Literal["stowplan.dev/v1alpha1"] = API_VERSION  # type: ignore[assignment]
    kind: Literal["Placement"] = "Placement"
    components: Annotated[tuple[ComponentPlacement, ...], Field(max_length=32)]

    @model_validator(mode="after")
    def _one_entry_a_component(self) -> Self:
        names = [component.name for component in self.components]
        for index, name in enumerate(names):
            if name in names[:index]:
                message = f"component {name} is listed twice; give each component one entry"
                raise FieldError(["components", index, "name"], message)
        return self

    def entry(self, name: str) -> ComponentPlacement:
        """The entry of one component. Raises KeyError when there is none."""
        for component in self.components:
            if component.name == name:
                return component
        raise KeyError(name)
