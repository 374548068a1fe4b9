"""The sentences that a frontier comes down to: what fits, what is enough, what more memory is worth, and why not less.

The page and the table say the same, so the words are made here, once.
"""

from __future__ import annotations

from stowplan_agent.report.drawing import FASTEST, duration, gib, label, slower
from stowplan_agent.report.frontier import EQUAL, Frontier, Point
from stowplan_agent.report.knee import Knee, knee
from stowplan_api.quantity import for_people

ENOUGH = 0.05
"""A size that is at most this much slower than the fastest is called enough."""


def headline(found: Frontier) -> str:
    """One sentence for a buyer."""
    fits = found.feasible
    if not fits:
        sizes = f"{gib(found.points[0].size)} to {gib(found.points[-1].size)}"
        return f"It does not fit on any size from {sizes}."
    fastest, enough, first = found.fastest, found.within(ENOUGH), fits[0]
    assert fastest is not None and enough is not None
    best, device = fastest.seconds or 0.0, found.record.ranks[0].device
    if first is fastest:
        return f"Every size on which it fits is as fast: {duration(best)} from {gib(first.size)} on."
    if enough is first:
        sold = next((point for point in fits if point.cards), first)
        # Whoever reads the name of a card beside a time takes it for the time on that card, so say whose speed it is.
        taken = f"at the speed of {device} a request takes {duration(sold.seconds or 0.0)}"
        more = slower(sold.seconds or 0.0, best)
        if more == FASTEST:
            return f"{_sold(sold)} is enough: {taken}, and more memory gains nothing."
        return (
            f"{_sold(sold)} is enough: {taken}, only {more.removeprefix('+')} more "
            f"than the {duration(best)} that {gib(fastest.size)} give."
        )
    fits_from = "It fits from" if found.smallest in (None, first.size) else "Of these sizes it fits from"
    return (
        f"{fits_from} {gib(first.size)} ({duration(first.seconds or 0.0)}); {gib(enough.size)} are within 5 % of the "
        f"fastest, {duration(best)}; more than {gib(fastest.size)} gain nothing."
    )


def _sold(point: Point) -> str:
    """A size with the cards that have it, for the start of a sentence."""
    names = ", ".join(card.name for card in point.cards)
    return f"{label(point)} of device memory (as much as on {names})" if names else f"{label(point)} of device memory"


def tiles(found: Frontier) -> list[tuple[str, str, str]]:
    """Three to five facts: what it is, the number, and what it means."""
    fits = found.feasible
    facts = []
    if found.smallest is not None:
        facts.append(("fits from", gib(found.smallest), "the smallest device memory on which a request runs"))
    if fits:
        enough, fastest = found.within(ENOUGH), found.fastest
        assert enough is not None and fastest is not None
        if enough is not fits[0]:
            taken = f"{duration(enough.seconds or 0.0)} a request"
            facts.append(("within 5 % of the fastest", gib(enough.size), taken))
        bend = knee(found)
        if bend is not None:
            facts.append(("knee of the curve", gib(bend.point.size), _gains(bend, "here")))
        facts.append(("nothing gained beyond", gib(fastest.size), f"{duration(fastest.seconds or 0.0)} a request"))
    facts.append(("everything stays resident", gib(found.full), "weights, largest activations, context and reserve"))
    return facts


def knee_line(found: Frontier) -> str | None:
    """Where more memory begins to gain little; None where there is no such place."""
    bend = knee(found)
    if bend is None:
        return None
    return f"The knee of the curve is at {gib(bend.point.size)}: {_gains(bend, 'there')}."


def _gains(bend: Knee, place: str) -> str:
    return f"a GiB saves {bend.before:.2g} s a request up to {place}, {bend.after:.2g} s beyond"


def why_not_less(found: Frontier) -> str | None:
    """Why the largest size that does not fit does not, by the interval that is short of most; None if all fit."""
    failed = [point for point in found.marked if point.seconds is None and point.plan is not None]
    if not failed or failed[-1].plan is None or not failed[-1].plan.shortfalls:
        return None
    return f"At {gib(failed[-1].size)} it does not fit: {failed[-1].plan.shortfalls[0].message}."


def same_machine(found: Frontier) -> str:
    """What the sizes mean: only the memory differs."""
    device = found.record.ranks[0].device
    return (
        f"Every size is {device} with that much memory: same compute, same link, same host. A card of another kind is "
        "slower or faster by its own compute; the marks say where the memory of known cards lies."
    )


def kept(point: Point) -> list[str]:
    """What one size keeps on the card, a few words a component; where nothing fits, what is short and what would do."""
    if point.plan is not None and point.seconds is None:
        short = [f"short: {one.message}" for one in point.plan.shortfalls[:1]]
        return short + [f"would fit: {one.message}" for one in point.plan.would_fit[:1]]
    words = []
    for one in point.held:
        if one.always >= one.total:
            state = "all resident"
        elif one.always + one.running == 0:
            state = "all streamed"
        else:
            parts = [(one.always, "for good"), (one.running, "while it runs")]
            state = " + ".join(f"{for_people(nbytes)} {when}" for nbytes, when in parts if nbytes)
            if one.always + one.running < one.total:
                state += f", rest of {for_people(one.total)} streamed"
        words.append(f"{one.component}: {state}")
    return words


def cells(found: Frontier, point: Point, among: tuple[Point, ...]) -> tuple[str, str, str, str, str]:
    """A row of a table: size, bytes, seconds, against the fastest, lost against the next size of ``among``."""
    name = label(point)
    if point.seconds is None or found.fastest is None:
        return name, gib(point.size), "does not fit", "", ""
    lost = found.loss(point, among)
    best = found.fastest.seconds or 0.0
    loss = "" if lost is None else "nothing" if lost <= EQUAL * point.seconds else duration(lost)
    return name, gib(point.size), duration(point.seconds), slower(point.seconds, best), loss
