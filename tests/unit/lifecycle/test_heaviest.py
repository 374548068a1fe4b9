"""Which of several declared shapes is proven by one step, and what is judged of it."""

from __future__ import annotations

import pytest

from planned_records import RECORD
from stowplan_agent.lifecycle.errors import StartError
from stowplan_agent.lifecycle.heaviest import Step, heaviest, heaviest_text, refute
from stowplan_agent.lifecycle.prediction import promise
from stowplan_agent.planning import seed_placement
from stowplan_agent.transaction import Criteria, Measured
from stowplan_api.diffusion_deployment import Shape
from stowplan_api.record import CalibrationRecord

MIB = 1 << 20
SEED = seed_placement(RECORD.components, ranks=1)


def declared(*activations: tuple[int, int]) -> tuple[CalibrationRecord, list[Shape]]:
    """A record of so many shapes, named s0, s1, ...: MiB of activations of each while denoising, and decoding."""
    (first, *_), names = RECORD.workloads, [f"s{index}" for index in range(len(activations))]
    intervals = tuple(
        interval.model_copy(
            update={
                "runs": tuple(
                    interval.runs[0].model_copy(update={"workload": name, "activation_bytes": (needs[at] * MIB,)})
                    for name, needs in zip(names, activations, strict=True)
                )
            }
        )
        for at, interval in enumerate(RECORD.intervals)
    )
    workloads = tuple(first.model_copy(update={"name": name}) for name in names)
    shapes = [Shape(name=name, width=32, height=32, steps=4) for name in names]
    return RECORD.model_copy(update={"workloads": workloads, "intervals": intervals}), shapes


@pytest.mark.parametrize(
    ("activations", "name"),
    [
        ([(5, 5)], "s0"),
        ([(5, 5), (9, 9)], "s1"),
        ([(9, 9), (5, 5)], "s0"),
        ([(5, 5), (5, 5)], "s0"),
        ([(5, 5), (9, 9), (9, 9)], "s1"),
        ([(5, 5), (9, 9), (7, 7)], "s1"),
        # Denoising peaks highest and alike, so that peaks are equal: decoding is what is not proven.
        ([(20, 5), (20, 9)], "s1"),
        ([(20, 5), (20, 9), (20, 12)], "s2"),
        # The highest peak of all is the first shape's own, proven by its own request.
        ([(20, 5), (3, 9)], "s1"),
        ([(20, 5), (3, 4)], "s0"),
        # Each of two is heavier in its own way: the one that leaves less.
        ([(1, 1), (1, 18), (2, 1)], "s1"),
    ],
)
def test_it_is_what_comes_nearest_to_a_limit_that_the_first_does_not_reach(
    activations: list[tuple[int, int]], name: str
) -> None:
    record, shapes = declared(*activations)
    assert heaviest(record, SEED, shapes)[0].name == name


def test_its_predicted_peak_is_that_of_a_whole_request_of_it() -> None:
    record, shapes = declared((20, 5), (20, 9))
    found, peak = heaviest(record, SEED, shapes)
    assert found.name == "s1"
    assert peak == promise(record, SEED, record.workloads[1]).peak_bytes


def step(peak: int, reserved: int = 0) -> Step:
    shape = Shape(name="wide", width=64, height=32, steps=1)
    return Step(shape, Measured("ab", 9e9, peak, reserved), predicted_peak_bytes=7 * MIB, calls=())


def test_its_memory_is_judged_and_neither_its_seconds_nor_its_bits() -> None:
    refute(step(39 * MIB, 40 * MIB), Criteria(capacity_bytes=40 * MIB, reserve_bytes=MIB))


@pytest.mark.parametrize(
    ("peak", "reserved", "words"),
    [
        (40 * MIB, 40 * MIB, "the allocated peak of 40 MiB is 1 MiB above the budget of 39 MiB"),
        (39 * MIB, 42 * MIB, "the reserved peak of 42 MiB is 2 MiB above the 40 MiB"),
    ],
)
def test_a_step_that_breaks_a_limit_names_its_shape_and_the_numbers(peak: int, reserved: int, words: str) -> None:
    with pytest.raises(StartError) as caught:
        refute(step(peak, reserved), Criteria(capacity_bytes=40 * MIB, reserve_bytes=MIB))
    assert caught.value.reason == "PeakOverBudget"
    assert str(caught.value).startswith("shape wide (64x32, 1 steps): " + words)


def test_what_is_said_of_it_has_both_numbers() -> None:
    status = step(6 * MIB).status()
    assert (status.shape, status.peak_bytes, status.predicted_peak_bytes) == ("wide", 6 * MIB, 7 * MIB)
    assert heaviest_text(status) == "wide, the shape that needs most, peaks at 6 MiB (7 MiB predicted)"
