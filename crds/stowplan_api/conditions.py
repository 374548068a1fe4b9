"""Conditions with Kubernetes hygiene.

`lastTransitionTime` moves only when the status flips, every condition carries `observedGeneration`, reasons are stable
CamelCase words, and setting what is already there returns the same list, so that nothing changed means nothing written.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import Field

from stowplan_api.markers import DATE_TIME
from stowplan_api.model import Model

Status = Literal["True", "False", "Unknown"]
MESSAGE_LIMIT = 1024
"""Bytes of a message kept: an Event or a status is not a log."""


class Condition(Model):
    """metav1.Condition."""

    type: Annotated[str, Field(min_length=1, max_length=316)]
    """What the condition speaks of."""
    status: Status
    """True, False or Unknown."""
    reason: Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")]
    """A stable CamelCase word for programs."""
    message: Annotated[str, Field(max_length=32768)] = ""
    """A sentence for people."""
    observed_generation: Annotated[int, Field(ge=0)] = 0
    """The generation of the object that this was said of."""
    last_transition_time: Annotated[str, Field(max_length=64, json_schema_extra=DATE_TIME)]
    """When the status last changed; a new message alone does not move it."""


def timestamp(now: datetime) -> str:
    """RFC 3339 in UTC with whole seconds, as Kubernetes writes metav1.Time."""
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def shorten(message: str, limit: int = MESSAGE_LIMIT) -> str:
    """A message of at most ``limit`` bytes of UTF-8, cut at a character, with an ellipsis where it was cut."""
    data = message.encode()
    if len(data) <= limit:
        return message
    return data[: limit - 3].decode(errors="ignore") + "…"


def find(conditions: Iterable[Condition], type_: str) -> Condition | None:
    """The condition of a type, if there is one."""
    return next((condition for condition in conditions if condition.type == type_), None)


def is_true(conditions: Iterable[Condition], type_: str) -> bool:
    """Whether the condition exists and is True."""
    found = find(conditions, type_)
    return found is not None and found.status == "True"


def set_condition(
    conditions: tuple[Condition, ...],
    type_: str,
    status: Status,
    reason: str,
    message: str,
    *,
    generation: int,
    now: datetime,
) -> tuple[Condition, ...]:
    """The conditions with one set; the same tuple if nothing differs. Order is kept, a new type goes last."""
    old = find(conditions, type_)
    flipped = old is None or old.status != status
    new = Condition(
        type=type_,
        status=status,
        reason=reason,
        message=shorten(message),
        observed_generation=generation,
        last_transition_time=timestamp(now) if old is None or flipped else old.last_transition_time,
    )
    if new == old:
        return conditions
    if old is None:
        return (*conditions, new)
    return tuple(new if condition.type == type_ else condition for condition in conditions)


def drop_condition(conditions: tuple[Condition, ...], type_: str) -> tuple[Condition, ...]:
    """The conditions without one type (Stalled and Reconciling exist only when True)."""
    return tuple(condition for condition in conditions if condition.type != type_)
