"""Drift is what the last requests have in common, said when it begins and when it is over, not at every request."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stowplan_agent.serving.drift import BACK_WITHIN, LEAST, OFF_BY, WINDOW, Drift, DriftWatch, Verdict, judge
from stowplan_agent.serving.metrics import AgentMetrics

STEADY = [1.0] * WINDOW


@pytest.mark.parametrize(
    ("ratios", "before", "drifted"),
    [
        (STEADY, None, False),
        ([1.09] * LEAST, None, False),
        ([1.1] * LEAST, None, False),  # on the border is not beyond it
        ([0.9] * LEAST, None, False),
        ([1.07] * LEAST, True, False),
        ([0.93] * LEAST, True, False),
        ([1.11] * LEAST, None, True),
        ([0.89] * LEAST, None, True),
        ([1.08] * LEAST, True, True),  # what was drift is so until it is clearly gone
        ([1.08] * LEAST, False, False),
        ([1.06] * LEAST, True, False),
        ([0.92] * LEAST, True, True),
        ([1.0, 1.0, 1.0, 9.0, 9.0], None, False),  # two requests that a neighbour held up
        ([1.0, 1.0, 9.0, 9.0, 9.0], None, True),
    ],
)
def test_the_median_is_judged_with_hysteresis(ratios: list[float], before: bool | None, drifted: bool) -> None:
    verdict = judge(ratios, before)
    assert verdict is not None
    assert verdict.drifted is drifted


@pytest.mark.parametrize("count", range(LEAST))
def test_too_few_requests_say_nothing(count: int) -> None:
    assert judge([5.0] * count, None) is None


@given(st.lists(st.floats(0.2, 5.0), min_size=LEAST, max_size=WINDOW))
def test_hysteresis_never_contradicts_a_clear_case(ratios: list[float]) -> None:
    fresh, kept = judge(ratios, False), judge(ratios, True)
    assert fresh is not None and kept is not None
    assert fresh.share == kept.share
    assert kept.drifted or not fresh.drifted
    if abs(fresh.share) > OFF_BY + 1e-9:
        assert fresh.drifted
    if abs(fresh.share) <= BACK_WITHIN - 1e-9:
        assert not kept.drifted


def test_a_change_is_heard_once_and_the_gauges_follow_every_request() -> None:
    metrics, heard = AgentMetrics(), list[Drift]()
    watch = DriftWatch(metrics, heard.append)

    def gauge(name: str, of: str) -> float | None:
        return metrics.registry.get_sample_value(f"stowplan_{name}", {"of": of})

    for _ in range(LEAST - 1):
        watch.observe(seconds_ratio=1.0, peak_ratio=1.0)
    assert (heard, gauge("drift_ratio", "seconds")) == ([], None)
    watch.observe(seconds_ratio=1.0, peak_ratio=1.0)
    assert [drift.flags for drift in heard] == [(False, False)]
    for _ in range(WINDOW):
        watch.observe(seconds_ratio=1.5, peak_ratio=1.0)
    assert [drift.flags for drift in heard] == [(False, False), (True, False)]
    assert gauge("drift_ratio", "seconds") == pytest.approx(0.5)
    assert (gauge("drifted", "seconds"), gauge("drifted", "peak")) == (1, 0)
    for _ in range(WINDOW):
        watch.observe(seconds_ratio=1.0, peak_ratio=0.8)
    assert heard[-1].flags == (False, True)
    assert gauge("drifted", "seconds") == 0


def test_what_nothing_was_promised_of_does_not_count() -> None:
    watch = DriftWatch(AgentMetrics())
    for _ in range(WINDOW):
        watch.observe(seconds_ratio=None, peak_ratio=1.0)
    assert watch.drift.seconds is None
    assert watch.drift.peak == Verdict(False, 0.0)


def test_the_sentence_has_the_numbers_and_the_way_out() -> None:
    both = Drift(Verdict(True, 0.25), Verdict(True, -0.125))
    assert both.sentence() == (
        "of the last 16 requests, seconds are 25% above what was promised and peaks of device memory are 12% below "
        "what was promised; restart the pod to measure and plan anew"
    )
    assert Drift(Verdict(False, 0.05)).sentence() == "the last requests took what was promised, within 10%"
