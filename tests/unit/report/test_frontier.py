"""The frontier as numbers: it never gets slower with memory, and its marks are what the planner says."""

from __future__ import annotations

from itertools import pairwise

from stowplan_agent.planning import cost, solve, with_device_memory
from stowplan_agent.report.frontier import Frontier, frontier
from stowplan_agent.report.frontier_document import frontier_json
from stowplan_agent.report.knee import knee
from stowplan_agent.report.sizes import GIB, default_range, even_sizes, full_size, smallest_size
from stowplan_api.placement import ComponentPlacement, Placement
from stowplan_api.record import CalibrationRecord


def test_more_memory_is_never_slower_and_fits_for_good(image_frontier: Frontier) -> None:
    points = image_frontier.points
    for smaller, larger in pairwise(points):
        assert smaller.size < larger.size
        if smaller.seconds is not None:
            assert larger.seconds is not None and larger.seconds <= smaller.seconds * (1 + 1e-6)
    assert points[0].seconds is None and points[-1].seconds is not None


def test_every_mark_is_the_planners_answer(image_frontier: Frontier, image_record: CalibrationRecord) -> None:
    assert len(image_frontier.marked) >= 5
    for point in image_frontier.marked[:3]:
        plan = solve(with_device_memory(image_record, point.size))
        assert point.plan == plan
        if plan.cost is None:
            assert point.seconds is None and point.plan.shortfalls and point.plan.would_fit
        else:
            assert point.seconds is not None and abs(plan.cost.seconds - point.seconds) <= 4e-6 * plan.cost.seconds


def test_the_smallest_size_fits_and_a_byte_less_does_not(image_record: CalibrationRecord) -> None:
    smallest = smallest_size(image_record)
    assert smallest is not None
    assert solve(with_device_memory(image_record, smallest)).status == "Optimal"
    assert solve(with_device_memory(image_record, smallest - 1)).status == "Infeasible"


def test_the_full_size_holds_everything_and_a_byte_less_does_not(image_record: CalibrationRecord) -> None:
    size = full_size(image_record)
    placed = Placement(
        components=tuple(ComponentPlacement(name=one.name, mode="Resident") for one in image_record.components)
    )
    assert cost(with_device_memory(image_record, size), placed).feasible
    assert not cost(with_device_memory(image_record, size - 1), placed).feasible


def test_what_is_held_is_within_the_weights_and_all_of_them_at_the_end(image_frontier: Frontier) -> None:
    for point in image_frontier.marked:
        assert all(0 <= one.always + one.running <= one.total for one in point.held)
    assert all(one.always == one.total for one in image_frontier.marked[-1].held)


def test_losses_are_against_the_next_size(image_frontier: Frontier) -> None:
    rows = image_frontier.feasible
    first, second = rows[0], rows[1]
    assert first.seconds is not None and second.seconds is not None
    assert image_frontier.loss(first, rows) == first.seconds - second.seconds
    assert image_frontier.loss(rows[-1], rows) is None


def test_named_sizes_are_all_solved_and_no_other(image_record: CalibrationRecord) -> None:
    found = frontier(image_record, (40 * GIB, 12 * GIB), named=True)
    assert [point.size for point in found.points] == [12 * GIB, 40 * GIB] == [point.size for point in found.marked]


def test_the_range_goes_from_what_does_not_fit_to_what_holds_all(image_record: CalibrationRecord) -> None:
    low, high = default_range(image_record)
    smallest = smallest_size(image_record)
    assert smallest is not None and 0 < low < smallest < full_size(image_record) <= high
    assert even_sizes(low, high, 60)[0] == low and even_sizes(low, high, 60)[-1] == high


def test_the_document_has_every_point(image_frontier: Frontier) -> None:
    document = frontier_json(image_frontier)
    assert document["kind"] == "Frontier" and "estimate" not in document
    assert [point["deviceMemory"] for point in document["points"]] == [point.size for point in image_frontier.points]
    assert {point["status"] for point in document["points"]} == {"Optimal", "Infeasible"}
    assert any("RTX 4090" in point.get("cards", ()) and point["components"] for point in document["points"])
    bend = knee(image_frontier)
    assert bend is not None and document["knee"]["deviceMemory"] == bend.point.size
