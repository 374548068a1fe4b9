"""A record as one page: its request second by second, where its weights live, which card, and how a pod started.

No script, no host, light and dark, on paper and on a phone. What is not known (no status, no frontier) has no section.
A record of several shapes has the first part once for each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final
from xml.sax.saxutils import escape

from stowplan_agent.report.curve import curve
from stowplan_agent.report.document import (
    broad_and_slim,
    cards,
    contents,
    document,
    heading,
    scrolls,
    table,
    tiles,
)
from stowplan_agent.report.drawing import NARROW, WIDTH
from stowplan_agent.report.explanation import infeasible_lines
from stowplan_agent.report.facts import headline as frontier_headline
from stowplan_agent.report.facts import same_machine
from stowplan_agent.report.frontier import Frontier
from stowplan_agent.report.provenance import estimate_note, is_estimate
from stowplan_agent.report.request import Request
from stowplan_agent.report.request_facts import HEADINGS, cells, headline, homes, shape_of, size
from stowplan_agent.report.request_facts import tiles as facts_of
from stowplan_agent.report.request_picture import timeline
from stowplan_agent.report.request_seconds import seconds_bars
from stowplan_agent.report.start import reasons_of, state_sentence
from stowplan_agent.report.start_sections import start_sections
from stowplan_api.residency_placement import ResidencyPlacementStatus

SCROLLED: Final = """
.wide table{min-width:720px} td.n{white-space:nowrap}
@media (min-width:641px){.homes td:nth-child(-n+2),.history td:first-child{white-space:nowrap}
.homes td:nth-child(3){min-width:150px}}
"""
"""On a phone numbers keep their size and are moved sideways, rather than shrunk beyond reading."""


@dataclass
class _Sections:
    """Parts in order, and the headings among them that the contents name."""

    parts: list[str] = field(default_factory=list)
    titles: list[str] = field(default_factory=list)

    def add(self, title: str, *inside: str) -> None:
        """A section that the contents lead to."""
        self.parts += [heading(title), *inside]
        self.titles.append(title)

    def within(self, title: str, *inside: str) -> None:
        """One below the last, which several have alike."""
        self.parts += [f"<h3>{escape(title)}</h3>", *inside]


def request_page(
    found: Sequence[Request], *, status: ResidencyPlacementStatus | None = None, frontier: Frontier | None = None
) -> str:
    """The whole page for the workloads of one record; ``status`` is that of a pod that was started with it."""
    record, sections = found[0].record, _Sections()
    for request in found:
        _one_request(sections, request, titled=len(found) > 1)
    sections.add("Where the weights live", _homes(found[0], status))
    if frontier is not None:
        sections.add("Which card", *_which_card(frontier, found[0]))
    for title, inside in start_sections(status) if status is not None else ():
        sections.add(title, inside)
    sections.add("How to read this", _reading(found[0]))
    title = f"{record.model.name}: one request, second by second"
    head = [*_head(found, title, status), contents(sections.titles)]
    return document(title, [*head, *sections.parts], SCROLLED)


def _head(found: Sequence[Request], title: str, status: ResidencyPlacementStatus | None) -> Iterable[str]:
    first, record = found[0], found[0].record
    machine = f"{first.rank.device} with {size(first.rank.capacity_bytes)}"
    shapes = "; ".join(shape_of(request.workload) for request in found)
    ranks = f", rank {first.rank.rank} of {len(record.ranks)}, which has least room" if len(record.ranks) > 1 else ""
    yield f"<h1>{escape(title)}</h1>"
    yield (
        f'<p class="sub">{escape(shapes)}; {escape(record.model.pipeline)} on {escape(machine + ranks)}, '
        f"{escape(_placed(first, status))}</p>"
    )
    note = estimate_note(record)
    yield f'<p class="note">{escape(note)}</p>' if note else ""
    yield _short(first)
    if status is not None:
        kind = "note good" if status.phase == "Ready" else "note"
        yield f'<p class="{kind}">{escape(state_sentence(status))}</p>'


def _one_request(sections: _Sections, found: Request, *, titled: bool) -> None:
    add = sections.within if titled else sections.add
    if titled:
        sections.add(f"{found.workload.name}: {shape_of(found.workload)}")
    sections.parts += [f'<p class="head">{escape(headline(found))}</p>', tiles(facts_of(found))]
    wide, slim = (timeline(found, style=False, width=width) for width in (WIDTH, NARROW))
    rule = '<p class="foot">Each stage has a least width; what is left is shared out by seconds.</p>'
    add("Device memory through the request", broad_and_slim(wide, slim), rule)
    wide, slim = (seconds_bars(found, style=False, width=width) for width in (WIDTH, NARROW))
    add("Where the seconds go", broad_and_slim(wide, slim))
    rows = [(cells(found, stage), found.left(stage) < 0) for stage in found.stages]
    stages = table(HEADINGS, rows, range(1, len(HEADINGS)))
    add("Stage by stage", scrolls(f"Stage by stage, {found.workload.name}", stages))


def _homes(found: Request, status: ResidencyPlacementStatus | None) -> str:
    said = reasons_of(status) if status is not None else {}
    rows = [((name, nbytes, mode, why or said.get(name, "")), False) for name, nbytes, mode, why in homes(found)]
    inside = table(("component", "weights", "placed", "why"), rows)
    return f'<div class="homes">{cards("Where the weights live", inside)}</div>'


def _which_card(frontier: Frontier, found: Request) -> Iterable[str]:
    here = found.rank.capacity_bytes
    yield f"<p>{escape(frontier_headline(frontier))}</p>"
    yield broad_and_slim(*(curve(frontier, style=False, width=width, here=here) for width in (WIDTH, NARROW)))
    yield f'<p class="foot">{escape(same_machine(frontier))}</p>'


def _placed(found: Request, status: ResidencyPlacementStatus | None) -> str:
    if found.plan is None:
        return "under the placement in force" if status is not None else "under the placement that was given"
    return "under its proven fastest placement" if found.plan.status == "Optimal" else "with everything streamed"


def _short(found: Request) -> str:
    if found.plan is None or found.plan.status == "Optimal":
        return ""
    lines = [
        *infeasible_lines(found.record.model.name, found.plan),
        "What is drawn, everything streamed, does not fit.",
    ]
    return '<p class="note">' + "<br/>".join(escape(line) for line in lines) + "</p>"


def _reading(found: Request) -> str:
    record = found.record
    how = "was estimated" if is_estimate(record) else "is extrapolated" if record.extrapolated else "was measured"
    lines = [
        f"Bytes and seconds are those of the cost model for this record and this placement; the record {how}.",
        "“Waits for weights”: compute waits for a copy, or is slowed by one beside it.",
        "“Left”: what is free at the stage's peak beside the reserve, which is larger where it is adaptive.",
        *record.provenance,
    ]
    return f'<ul class="foot">{"".join(f"<li>{escape(line)}</li>" for line in lines)}</ul>'
