"""An interval whose activations differ between two requests of one shape is marked, and planned with more reserve."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stowplan_agent.calibration import Machine, Observation, build_record, disagreeing, marked
from stowplan_agent.planning.limits import reserve_bytes
from stowplan_api.record import Component, Link, ModelIdentity, Workload

GIB = 1 << 30
ENCODE = Observation("text_encoder", "forward", 1, 1, 1 * GIB, 0.1, {})
DENOISE = Observation("transformer", "forward", 4, 4, 4 * GIB, 0.1, {})
DECODE = Observation("vae", "decode", 1, 1, 9 * GIB, 0.1, {})
REQUEST = (ENCODE, DENOISE, DECODE)


def decoding(nbytes: int) -> tuple[Observation, ...]:
    return (ENCODE, DENOISE, replace(DECODE, activation_bytes=nbytes))


@pytest.mark.parametrize(
    ("after", "slack", "found"),
    [
        (REQUEST, 0, set()),
        (decoding(6 * GIB), GIB, {("vae", "decode")}),
        (decoding(12 * GIB), GIB, {("vae", "decode")}),
        (decoding(9 * GIB - GIB // 8), 0, set()),  # 1.4 %
        (decoding(6 * GIB), 4 * GIB, set()),  # the ordinary reserve is for that
        (REQUEST[1:], 0, set()),  # nothing to compare
    ],
)
def test_what_takes_what_is_free_is_found(
    after: tuple[Observation, ...], slack: int, found: set[tuple[str, str]]
) -> None:
    assert disagreeing(REQUEST, after, slack_bytes=slack) == found
    assert disagreeing(after, REQUEST, slack_bytes=slack) == found


def test_a_marked_interval_has_the_larger_reserve_and_the_others_the_ordinary_one() -> None:
    machine = Machine("node", "card", 80 * GIB, 0, None, 0, 0)
    link = Link(pinned_bytes_per_second=1e9, pageable_bytes_per_second=1e9, latency_seconds=0.0, contention=1.0)
    parts = [Component(name=name, loose_bytes=GIB) for name in ("text_encoder", "transformer", "vae")]
    workload = Workload(name="a", width=64, height=64, steps=4)
    record = build_record(
        ModelIdentity(name="m", pipeline="P", fingerprint="f"), {workload: REQUEST}, parts, machine, link
    )
    wary = marked(record, disagreeing(REQUEST, decoding(5 * GIB), slack_bytes=GIB))
    assert [interval.adaptive for interval in wary.intervals] == [False, False, True]
    assert [reserve_bytes(wary, interval, wary.ranks[0]) * 10 // GIB for interval in wary.intervals] == [16, 16, 80]
    assert marked(record, ()) == record
