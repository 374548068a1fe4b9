"""Which intervals take what memory is free: told by running one request twice.

Some kernels, and some VAEs, ask how much memory is free and take more where there is more. Their activations are no
property of the shape, so a record of them answers for another card only with more reserve (PLANNING.md, section 1). The
bounded request runs before and after the probe: before it the allocator holds little, after it what a request of full
size took. What differs between the two adapts.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from stowplan_agent.calibration.observation import Observation, timeline_of
from stowplan_api.record import CalibrationRecord

Call = tuple[str | None, str]
"""A component and its entry."""
SHARE: Final = 50
"""Activations that differ by less than one part in this (2 %) are the same: so many are left for noise on any card."""


def disagreeing(before: Sequence[Observation], after: Sequence[Observation], *, slack_bytes: int) -> frozenset[Call]:
    """The intervals of two requests of one shape whose activations differ by more than 2 %, and than ``slack_bytes``.

    What differs by less is what a plan's ordinary reserve is for. Of requests that ran other components nothing is
    said.
    """
    if timeline_of(before) != timeline_of(after):
        return frozenset()
    return frozenset(
        (one.component, one.entry)
        for one, other in zip(before, after, strict=True)
        if abs(one.activation_bytes - other.activation_bytes) > max(slack_bytes, _largest(one, other) // SHARE)
    )


def marked(record: CalibrationRecord, calls: Collection[Call]) -> CalibrationRecord:
    """The record with these intervals ``adaptive``, so that plans keep the larger reserve in them."""
    intervals = tuple(
        one.model_copy(update={"adaptive": True}) if (one.component, one.entry) in calls else one
        for one in record.intervals
    )
    return record.model_copy(update={"intervals": intervals}) if calls else record


def _largest(one: Observation, other: Observation) -> int:
    return max(one.activation_bytes, other.activation_bytes)
