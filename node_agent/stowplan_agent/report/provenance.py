"""Whether a record was measured or estimated, said in one sentence on everything that is made from it."""

from __future__ import annotations

from typing import Final

from stowplan_api.record import CalibrationRecord

ESTIMATE: Final = "ESTIMATE"
"""First word of the provenance of a record of which nothing was measured."""


def is_estimate(record: CalibrationRecord) -> bool:
    """Whether ``record`` says of itself that it was computed, not measured."""
    return bool(record.provenance) and record.provenance[0].startswith(ESTIMATE)


def estimate_note(record: CalibrationRecord) -> str | None:
    """The sentence that goes on every output made from an estimated record; None for a measured one."""
    return record.provenance[0] if is_estimate(record) else None
