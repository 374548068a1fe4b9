"""How the API server's answers are judged: wait, tell the user, or let the object go."""

from __future__ import annotations

import json

import pytest

from stowplan_operator.client import ApiError, _refused


def answer(status: int, message: str, retry_after: str | None = None) -> ApiError:
    return _refused(status, json.dumps({"kind": "Status", "message": message}).encode(), retry_after)


@pytest.mark.parametrize(
    ("status", "message", "transient", "gone"),
    [
        (404, 'pods "x" not found', False, True),
        (403, "unable to create new content in namespace x because it is being terminated", False, True),
        (422, 'Pod "x" is invalid: metadata.uid: Invalid value: field is immutable', False, True),
        (403, "exceeded quota: none", False, False),
        (409, "Precondition failed: UID in precondition", False, False),
        (422, "spec.selector: field is immutable", False, False),
        (500, "failed calling webhook", False, False),
        (500, "failed to create typed patch object: field not declared in schema", False, False),
        (429, "too many requests", True, False),
        (503, "the server is currently unable to handle the request", True, False),
        (504, "timeout", True, False),
        (0, "no answer", True, False),
    ],
)
def test_table(status: int, message: str, transient: bool, gone: bool) -> None:
    error = answer(status, message)
    assert (error.transient, error.gone, error.message) == (transient, gone, message)


@pytest.mark.parametrize(("header", "seconds"), [("7", 7.0), (None, 0.0), ("soon", 0.0)])
def test_the_server_says_how_long_to_wait(header: str | None, seconds: float) -> None:
    assert answer(429, "busy", header).retry_after == seconds


def test_an_answer_that_is_no_status_is_quoted_in_part() -> None:
    error = _refused(502, b"<html>" + b"x" * 5000, None)
    assert error.message.startswith("<html>")
    assert len(error.message) == 256
