"""The words of a request's timeline: one sentence, four numbers, a row a stage, a line a component.

The page and the table say the same, so the words are made here, once.
"""

from __future__ import annotations

from typing import Final

from stowplan_agent.planning.wording import in_words
from stowplan_agent.report.drawing import duration, gib
from stowplan_agent.report.request import Request
from stowplan_agent.report.sizes import GIB
from stowplan_agent.report.stage import Stage
from stowplan_api.record import Workload

SECONDS: Final = ("stage", "passes", "seconds", "share", "waits")
MEMORY: Final = ("stage", "weights", "activations", "peak", "left")
HEADINGS: Final = ("stage", "passes", "seconds", "share", "waits", "activations", "peak", "left")


def shape_of(workload: Workload) -> str:
    """A workload's shape and steps."""
    frames = f", {workload.frames} frames" if workload.frames > 1 else ""
    return f"{workload.width} x {workload.height}{frames}, {workload.steps} steps"


def headline(found: Request) -> str:
    """Where the seconds go and where the memory is highest, in one sentence."""
    longest, highest, tightest = found.longest, found.highest, found.tightest
    most = f"{percent(longest.seconds, found.seconds)} of it in {longest.name}"
    peak = f"the highest peak is {size(highest.peak)} of {size(found.rank.capacity_bytes)}, in {highest.name}"
    where = "" if tightest is highest else f"in {tightest.name} "
    left = found.left(tightest)
    room = f"{where}{size(left)} are left beside the reserve" if left >= 0 else f"{where}{size(-left)} are missing"
    return f"A request takes {duration(found.seconds)}, {most}; {peak}; {room}."


def tiles(found: Request) -> list[tuple[str, str, str]]:
    """Four facts: what it is, the number, and what it means."""
    highest = found.highest
    weights = sum(part.total_bytes() for part in found.record.components)
    passes = sum(stage.passes for stage in found.stages if stage.component == found.longest.component)
    waiting = percent(found.waiting, found.seconds)
    return [
        (
            "one request",
            duration(found.seconds),
            f"{passes} passes of {found.longest.component or found.longest.entry}",
        ),
        ("highest peak", gib(highest.peak), f"in {highest.name}, {gib(highest.activations)} of it activations"),
        ("waits for weights", duration(found.waiting), f"{waiting} of the request"),
        ("all weights", gib(weights), f"of which {gib(highest.weights)} are on the card at the peak"),
    ]


def cells(found: Request, stage: Stage) -> tuple[str, ...]:
    """A row of the table of stages, as `HEADINGS` say."""
    left = found.left(stage)
    return (
        f"{stage.number} {stage.name}" + (", adaptive" if stage.adaptive else ""),
        str(stage.passes),
        duration(stage.seconds),
        percent(stage.seconds, found.seconds),
        duration(stage.waiting) if stage.waiting else "-",
        size(stage.activations),
        size(stage.peak),
        size(left) if left >= 0 else f"-{size(-left)}",
    )


def seconds_row(found: Request, stage: Stage) -> tuple[str, ...]:
    """Stage, passes, seconds, share and what waits: the columns about time."""
    return cells(found, stage)[:5]


def memory_row(found: Request, stage: Stage) -> tuple[str, ...]:
    """Stage, weights, activations, peak and what is left: the columns about memory."""
    name, *rest = cells(found, stage)
    return (name, size(stage.weights), *rest[4:])


def homes(found: Request) -> list[tuple[str, str, str, str]]:
    """Where each component lives: name, bytes, its entry in words, and why not another, where a plan says so."""
    words = {one.component: one for one in found.plan.explanations} if found.plan is not None else {}
    entries = {entry.name: entry for entry in found.placement.components}
    rows = []
    for part in found.record.components:
        why = words.get(part.name)
        rows.append(
            (
                part.name,
                size(part.total_bytes()),
                in_words(part, entries[part.name]) if part.name in entries else "not placed",
                "" if why is None else f"not {why.lost}: {why.because}" if why.lost else why.because,
            )
        )
    return rows


def size(nbytes: float) -> str:
    """Bytes with three digits, in GiB or, below one, in MiB."""
    return gib(nbytes) if nbytes >= GIB else f"{nbytes * 1024 / GIB:.3g} MiB"


def percent(part: float, whole: float) -> str:
    """A share in percent, two digits."""
    share = 100 * part / whole if whole > 0 else 0.0
    return f"{share:.0f} %" if share >= 9.5 or share == 0 else f"{share:.2g} %" if share >= 0.1 else "< 0.1 %"
