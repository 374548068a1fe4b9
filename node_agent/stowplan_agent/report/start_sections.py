"""The sections of a page that a status fills: promised against measured, how the pod started, what was taken back."""

from __future__ import annotations

from collections.abc import Iterator
from xml.sax.saxutils import escape

from stowplan_agent.report.document import broad_and_slim, cards, table
from stowplan_agent.report.drawing import NARROW, WIDTH
from stowplan_agent.report.start import proof_rows, proof_sentence, rollback_rows, start_sentence
from stowplan_agent.report.start_picture import phases_picture
from stowplan_api.residency_placement import ResidencyPlacementStatus


def start_sections(status: ResidencyPlacementStatus) -> Iterator[tuple[str, str]]:
    """Title and content of each section that the status has something for."""
    if rows := proof_rows(status):
        headings = ("what", "promised or before", "measured", "difference")
        proof = table(headings, [(one, one[-1] == "differs") for one in rows], (1, 2, 3))
        said = proof_sentence(status)
        words = f'<p class="foot">The agent says: {escape(said)}.</p>' if said else ""
        yield (
            "Promised against measured",
            cards("Promised against measured", proof) + words,
        )
    if status.phases:
        wide, slim = (phases_picture(status, style=False, width=width) for width in (WIDTH, NARROW))
        yield "How the pod started", f"<p>{escape(start_sentence(status))}</p>{broad_and_slim(wide, slim)}"
    if taken := rollback_rows(status):
        history = table(("when", "why", "from", "to", "measured"), [(row, False) for row in taken])
        yield "Rollbacks", f'<div class="history">{cards("Rollbacks", history)}</div>'
