"""Liveness: a kind that nothing was heard of for too long is named."""

from __future__ import annotations

from stowplan_operator.freshness import Freshness
from stowplan_operator.kinds import POD, WATCHED
from stowplan_operator.metrics import Metrics


def test_the_kind_that_went_silent_is_named() -> None:
    time = [0.0]
    freshness = Freshness(Metrics(), clock=lambda: time[0])
    assert freshness.complaint(60) == ""
    time[0] = 50.0
    for kind in WATCHED:
        if kind != POD:
            freshness.heard(kind)
    time[0] = 61.0
    assert freshness.complaint(60) == "no event or list of Pod for 61 s (limit 60 s); the API server does not answer"
    freshness.heard(POD)
    assert freshness.complaint(60) == ""
