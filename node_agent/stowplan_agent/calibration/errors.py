"""How measuring fails: in one sentence, for a user."""

from __future__ import annotations


class CalibrationError(RuntimeError):
    """What was measured does not make one record. The message says what disagrees."""
