"""What the two statuses share: integers for programs, and the same in words for printer columns.

A status holds bytes and milliseconds as integers. A printer column cannot calculate, so the words that `kubectl get`
shows are computed fields: derived when a status is written, ignored when one is read, never stored apart from the
integer that they repeat.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator
from pydantic.alias_generators import to_camel

from stowplan_api.markers import DATE_TIME
from stowplan_api.model import Model

Text = Annotated[str, Field(max_length=1024)]
Timestamp = Annotated[str, Field(max_length=64, json_schema_extra=DATE_TIME)]
Milliseconds = Annotated[int, Field(ge=0)]


class StatusModel(Model):
    """A status with computed fields, which may be read back with them."""

    @model_validator(mode="before")
    @classmethod
    def _drop_computed(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        computed = {to_camel(name) for name in cls.model_computed_fields}
        return {name: value for name, value in data.items() if name not in computed}


def seconds_for_people(milliseconds: int) -> str:
    """Milliseconds as seconds with three digits that matter: ``0.042s``, ``1.25s``, ``83.4s``, ``1234s``."""
    seconds = milliseconds / 1000
    digits = 3 if seconds < 1 else 2 if seconds < 10 else 1 if seconds < 100 else 0
    return f"{seconds:.{digits}f}s"
