"""An error that nobody foresaw goes into a status as one sentence, with what was noted of it."""

from __future__ import annotations

from stowplan_agent.lifecycle.errors import in_words


def test_an_error_in_words() -> None:
    error = RuntimeError("two devices")
    assert in_words(error) == "RuntimeError: two devices"
    error.add_note("component vae streams")
    assert in_words(error) == "RuntimeError: two devices; component vae streams"
