"""Making a record: several shapes in one timeline, and what a shape that did not fit would have needed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stowplan_agent.calibration import CalibrationError, Machine, Observation, Sample, build_record, extrapolate
from stowplan_api.record import CalibrationRecord, Component, Group, Link, ModelIdentity, Workload

MODEL = ModelIdentity(name="wan", pipeline="WanPipeline", fingerprint="f")
MACHINE = Machine("node", "Card", 1 << 30, 1 << 20, 1 << 20, 1 << 30, 2 << 30)
LINK = Link(pinned_bytes_per_second=4.0, pageable_bytes_per_second=1.0, latency_seconds=0.0, contention=1.0)
COMPONENTS = (
    Component(name="text", loose_bytes=10),
    Component(name="denoiser", loose_bytes=1, groups=(Group(name="blocks", layer_bytes=(5, 5)),)),
)
TEXT = Observation("text", "forward", 1, 1, 500, 0.5, {})
DENOISER = Observation("denoiser", "forward", 2, 4, 1000, 0.1, {"blocks": (0.2, 0.3)})
FINISH = Observation(None, "finish", 1, 1, 30, 0.01, {})
TIMELINE = (TEXT, DENOISER, FINISH)


def workload(name: str, width: int = 64) -> Workload:
    return Workload(name=name, width=width, height=64, frames=5, steps=4)


def test_one_shape() -> None:
    record = build_record(MODEL, {workload("a"): TIMELINE}, COMPONENTS, MACHINE, LINK, provenance=["measured"])
    assert [(one.component, one.entry) for one in record.intervals] == [
        ("text", "forward"),
        ("denoiser", "forward"),
        (None, "finish"),
    ]
    run = record.intervals[1].runs[0]
    assert (run.passes, run.calls, run.activation_bytes, run.loose_seconds) == (4, 2, (1000,), 0.1)
    assert run.layer_seconds == {"blocks": (0.2, 0.3)}
    assert record.intervals[0].runs[0].calls is None  # as many as passes
    assert (record.extrapolated, record.provenance) == (False, ("measured",))
    (rank,) = record.ranks
    assert (rank.capacity_bytes, rank.outside_bytes, rank.reserve_bytes, rank.link) == (1 << 30, 1 << 20, 1 << 20, LINK)
    assert (record.nodes[0].pinnable_bytes, record.nodes[0].host_bytes) == (1 << 30, 2 << 30)
    assert CalibrationRecord.from_json(record.to_json()) == record


def test_several_shapes_run_in_the_same_intervals() -> None:
    larger = tuple(replace(one, activation_bytes=one.activation_bytes * 2) for one in TIMELINE)
    record = build_record(MODEL, {workload("a"): TIMELINE, workload("b", 128): larger}, COMPONENTS, MACHINE, LINK)
    assert [run.workload for run in record.intervals[1].runs] == ["a", "b"]
    assert [run.activation_bytes for run in record.intervals[1].runs] == [(1000,), (2000,)]
    assert [interval.reserve_bytes for interval in record.intervals] == [0, 0, 0]


def test_an_interval_keeps_free_what_the_allocator_took_in_the_heaviest_shape() -> None:
    """Its own fragmentation, and what the largest of the smaller intervals left."""
    text = replace(TEXT, fragmentation_bytes=40)
    smaller, larger = (replace(DENOISER, fragmentation_bytes=nbytes) for nbytes in (70, 90))
    shapes = {workload("a"): (text, smaller, FINISH), workload("b"): (text, larger, FINISH)}
    record = build_record(MODEL, shapes, COMPONENTS, MACHINE, LINK)
    assert [interval.reserve_bytes for interval in record.intervals] == [40 + 30, 90 + 500 + 40, 0]


def test_shapes_that_run_other_components_are_refused_by_name() -> None:
    with pytest.raises(CalibrationError, match="shapes a and b run different components; declare them apart"):
        build_record(MODEL, {workload("a"): TIMELINE, workload("b"): TIMELINE[1:]}, COMPONENTS, MACHINE, LINK)


@given(
    fixed=st.integers(0, 10**9),
    slope=st.integers(0, 1000),
    works=st.lists(st.integers(1, 10**7), min_size=3, max_size=3, unique=True).map(sorted),
)
def test_what_grows_on_a_line_is_met_exactly(fixed: int, slope: int, works: list[int]) -> None:
    def at(work: int) -> Sample:
        share = slope * work
        grown = replace(
            DENOISER,
            activation_bytes=fixed + share,
            loose_seconds=float(fixed + share),
            layer_seconds={"blocks": (float(share), float(fixed))},
        )
        return Sample(work, (replace(TEXT, activation_bytes=fixed), grown))

    near, far, wanted = (at(work) for work in works)
    text, denoiser = extrapolate(far, near, wanted.work)
    assert text.activation_bytes == fixed
    truth = wanted.observations[1]
    assert denoiser.activation_bytes == pytest.approx(truth.activation_bytes, rel=1e-9, abs=1)
    assert denoiser.loose_seconds == pytest.approx(truth.loose_seconds, rel=1e-9, abs=1e-6)
    assert denoiser.layer_seconds["blocks"] == pytest.approx(truth.layer_seconds["blocks"], rel=1e-9, abs=1e-6)
    assert (denoiser.passes, denoiser.calls) == (4, 2)


@given(near=st.integers(0, 10**6), far=st.integers(0, 10**6), work=st.integers(201, 10**6))
def test_more_work_never_needs_less_than_was_measured(near: int, far: int, work: int) -> None:
    def sample(size: int, nbytes: int) -> Sample:
        return Sample(size, (replace(TEXT, activation_bytes=nbytes),))

    (found,) = extrapolate(sample(200, far), sample(100, near), work)
    assert found.activation_bytes >= far


@pytest.mark.parametrize("smaller", [None, Sample(50, TIMELINE[1:])])
def test_m3_with_one_usable_sample_everything_grows_in_proportion(smaller: Sample | None) -> None:
    """Measured at one area, declared at 1.99 times that."""
    text, denoiser, _ = extrapolate(Sample(100, TIMELINE), smaller, 199)
    assert text.activation_bytes == 995
    assert denoiser.activation_bytes == 1990
    assert denoiser.layer_seconds["blocks"] == pytest.approx((0.398, 0.597))
