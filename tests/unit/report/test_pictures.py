"""The picture and the page: well formed, self-contained, and with the facts in them."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from stowplan_agent.report.bars import bars
from stowplan_agent.report.curve import curve
from stowplan_agent.report.drawing import NARROW, duration, gib, slower
from stowplan_agent.report.facts import headline
from stowplan_agent.report.frontier import Frontier, Point, frontier
from stowplan_agent.report.knee import knee
from stowplan_agent.report.page import page
from stowplan_agent.report.sizes import GIB
from stowplan_api.record import CalibrationRecord

SVG = "{http://www.w3.org/2000/svg}"


def words(text: str) -> str:
    return " ".join(ElementTree.fromstring(text).itertext())


def body(text: str) -> str:
    return text.removeprefix("<!DOCTYPE html>\n")


def test_the_curve_is_well_formed_and_says_where_it_begins(image_frontier: Frontier) -> None:
    root = ElementTree.fromstring(curve(image_frontier))
    assert root.tag == f"{SVG}svg"
    assert len(root.findall(f"{SVG}circle")) == sum(1 for point in image_frontier.points if point.cards)
    said = words(curve(image_frontier))
    assert image_frontier.smallest is not None
    assert f"does not fit below {gib(image_frontier.smallest)}" in said
    assert "24 GB" in said and "32 GB" in said and "prefers-color-scheme: dark" in said


def test_the_curve_goes_down_in_steps(image_frontier: Frontier) -> None:
    root = ElementTree.fromstring(curve(image_frontier))
    (path,) = (one.get("d", "") for one in root.findall(f"{SVG}path") if one.get("class") == "curve")
    assert re.fullmatch(r"M[\d.]+ [\d.]+(H[\d.]+V[\d.]+)+", path)
    heights = [float(text) for text in re.findall(r"V([\d.]+)", path)]
    assert heights == sorted(heights) and len(heights) == len(image_frontier.feasible) - 1


def test_an_axis_that_does_not_start_at_zero_says_so(image_record: CalibrationRecord) -> None:
    flat = frontier(image_record, [24 * GIB, 28 * GIB, 40 * GIB])
    assert "the axis does not start at 0" in curve(flat)
    steep = frontier(image_record, [4 * GIB, 40 * GIB])
    assert "the axis does not start at 0" not in curve(steep)


def test_the_bars_have_a_row_for_each_mark(image_frontier: Frontier) -> None:
    said = words(bars(image_frontier))
    for point in image_frontier.marked:
        assert ("does not fit" if point.seconds is None else duration(point.seconds)) in said
    assert "text_encoder" in said and "only while it runs" in said


def test_the_page_is_whole_and_needs_nothing_else(image_frontier: Frontier) -> None:
    text = page(image_frontier)
    said = words(body(text))
    assert text.startswith("<!DOCTYPE html>")
    assert "<script" not in text and "http://www.w3.org/2000/svg" in text
    assert re.findall(r"(?:href|src)=|url\(|https?://(?!www\.w3\.org/2000/svg)", text) == []
    assert headline(image_frontier) in said
    assert "RTX 4090" in said and "interval" in said and "would fit: " in said
    assert "same compute, same link, same host" in said
    assert all(line in said for line in image_frontier.record.provenance)


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        (
            [24, 28, 40],
            "is enough: at the speed of RTX 5090 32 GiB a request takes 14.16 s, only 1.8 % more than the 13.91",
        ),
        ([8, 28, 40], "28 GiB are within 5 % of the fastest, 13.91 s; more than 28 GiB gain nothing."),
        ([30, 40], "Every size on which it fits is as fast: 13.91 s from 30 GiB on."),
        ([1, 2], "It does not fit on any size from 1 GiB to 2 GiB."),
    ],
)
def test_the_headline_is_for_a_buyer(image_record: CalibrationRecord, sizes: list[int], said: str) -> None:
    assert said in headline(frontier(image_record, [size * GIB for size in sizes], named=True))


def test_names_in_a_record_cannot_break_the_page(image_record: CalibrationRecord) -> None:
    evil = "<script>\"&'</script>"
    model = image_record.model.model_copy(update={"name": evil})
    found = frontier(image_record.model_copy(update={"model": model}), [8 * GIB, 40 * GIB])
    for text in (body(page(found)), curve(found), bars(found)):
        assert evil in words(text) or evil in (ElementTree.fromstring(text).get("aria-label") or "")
        assert "<script" not in text


def test_a_frontier_where_nothing_fits_is_drawn_too(image_record: CalibrationRecord) -> None:
    found = frontier(image_record, [GIB, 2 * GIB])
    said = words(body(page(found)))
    assert "does not fit on any of these sizes" in said and "It does not fit on any size" in said


@pytest.mark.parametrize(
    ("seconds", "best", "said"), [(1, 1, "fastest"), (1.0068, 1, "+0.68 %"), (1.098, 1, "+9.8 %"), (2.27, 1, "+127 %")]
)
def test_how_much_slower(seconds: float, best: float, said: str) -> None:
    assert slower(seconds, best) == said


def test_the_knee_is_where_more_memory_begins_to_gain_little(image_frontier: Frontier) -> None:
    bend = knee(image_frontier)
    assert bend is not None and bend.before > 2 * bend.after > 0
    fits, fastest = image_frontier.feasible, image_frontier.fastest
    assert fastest is not None and fits[0].size < bend.point.size < fastest.size
    for text in (curve(image_frontier), body(page(image_frontier))):
        assert f"knee at {gib(bend.point.size)}" in words(text)


def test_a_straight_line_and_a_flat_one_have_no_knee(image_record: CalibrationRecord) -> None:
    sizes = [number * GIB for number in (10, 20, 30, 40)]
    for seconds in ([4.0, 3.0, 2.0, 1.0], [1.0, 1.0, 1.0, 1.0], [4.0, 3.9, 3.5, 1.0]):
        points = tuple(Point(size, one) for size, one in zip(sizes, seconds, strict=True))
        assert knee(Frontier(image_record, points, sizes[0], sizes[-1])) is None
    bent = tuple(Point(size, one) for size, one in zip(sizes, [4.0, 1.5, 1.2, 1.0], strict=True))
    found = knee(Frontier(image_record, bent, sizes[0], sizes[-1]))
    assert found is not None and (found.point.size, found.before, found.after) == (20 * GIB, 0.25, 0.025)


def test_a_phone_gets_a_picture_of_its_own_and_keys_reach_what_scrolls(image_frontier: Frontier) -> None:
    text = page(image_frontier)
    root = ElementTree.fromstring(body(text))
    boxes = [one.get("viewBox", "").split()[2] for one in root.iter(f"{SVG}svg")]
    assert boxes.count(str(NARROW)) == 1 and len(boxes) == 3
    scrolls = [one for one in root.iter() if one.get("class") == "wide"]
    assert scrolls and all(one.get("tabindex") == "0" and one.get("aria-label") for one in scrolls)
    assert "@media print" in text and "max-width:640px" in text and ":focus-visible" in text
    drawn = curve(image_frontier, width=NARROW)
    numbers = [float(one.get("x", 0)) for one in ElementTree.fromstring(drawn).iter(f"{SVG}text")]
    assert all(0 <= x <= NARROW for x in numbers)


def test_whose_seconds_these_are_is_said_before_any_number_of_the_page(image_frontier: Frontier) -> None:
    said = words(body(page(image_frontier)))
    device = image_frontier.record.ranks[0].device
    whose, first = f"All seconds are those of {device} with so much memory", "the smallest device memory on which"
    assert said.index(whose) < said.index(first)
