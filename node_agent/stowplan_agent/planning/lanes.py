"""Many runs of one component at once: the recurrence of `ring` for thousands of ways to stream, side by side.

Each way is a lane. All lanes go through the layers together, one numpy operation for all of them, so 100,000 runs of
60 layers take seconds. The result equals `ring.run_seconds` but for rounding; a test compares them.

What makes it possible: which copy starts after which layer does not depend on times (`schedule`). That needs a ring
that does not run more than one pass ahead: lanes with fewer streamed layers than slots go through `ring` one by one.
So do all lanes where they are few: an operation on a few numbers takes as long as on hundreds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from stowplan_agent.planning.lane_engines import LaneEngines
from stowplan_agent.planning.ring import Step, step_seconds
from stowplan_agent.planning.schedule import schedule_of

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

MANY: Final = 8
"""Lanes that stream the same layer, on average, from which it takes less time to run all of them side by side."""


def lane_seconds(
    passes: int,
    loose: float,
    seconds: Sequence[float],
    ring_of: Sequence[int],
    slots: Ints,
    copies: Floats,
    streamed: Bools,
    contention: float,
    swaps: Floats | None = None,
) -> Floats:
    """Seconds of ``passes`` passes of each lane, from cold rings to the end of the last layer.

    ``seconds`` is the compute of each layer and ``loose`` what comes before the first; ``copies`` (layer by lane) is
    the time of each copy on the host link, and ``swaps`` on the peer link, where there is one. The other arguments are
    those of `schedule_of`: there, what only swaps counts as streamed.
    """
    each, rings = np.array(seconds), np.array(ring_of)
    ends = np.concatenate([[0.0], np.cumsum(each)])
    result = np.full(streamed.shape[1], passes * (loose + float(ends[-1])))
    if passes <= 0 or not streamed.any():
        return result
    narrow = np.zeros(streamed.shape[1], dtype=np.bool_)
    for ring in range(len(slots)):
        total = streamed[rings == ring].sum(axis=0)
        narrow |= (total > 0) & (total < slots[ring])
    wide = np.flatnonzero(streamed.any(axis=0) & ~narrow)
    if streamed[:, wide].sum() < MANY * streamed[:, wide].any(axis=1).sum():
        narrow[wide], wide = True, wide[:0]
    if narrow.any():
        few = np.flatnonzero(narrow)
        swapped = None if swaps is None else swaps[:, few]
        runs = _steps(loose, each, ends, rings, copies[:, few], streamed[:, few], swapped)
        result[few] = [
            step_seconds(passes, lead, steps, one, contention)
            for (lead, steps), one in zip(runs, slots[:, few].T.tolist(), strict=True)
        ]
    if len(wide):
        # Layers that no lane streams free no slot and wait for nothing: a stretch of them is one step.
        rows = np.flatnonzero(streamed[:, wide].any(axis=1))
        schedule = schedule_of(streamed[np.ix_(rows, wide)], rings[rows], slots[:, wide])
        gaps = np.append(ends[rows[1:]], ends[-1]) - ends[rows + 1]
        lead = loose + float(ends[rows[0]])
        some = np.ix_(rows, wide)
        swapped = None if swaps is None else swaps[some]
        lanes = LaneEngines(lead, each[rows], gaps, copies[some], swapped, schedule, contention)
        result[wide] = lanes.run(passes)
    return result


def _steps(
    loose: float, seconds: Floats, ends: Floats, rings: Ints, copies: Floats, streamed: Bools, swaps: Floats | None
) -> list[tuple[float, list[Step]]]:
    """What `ring.step_seconds` asks for, of lanes that all stream something; ``ends`` are sums of ``seconds``."""
    lane, layer = np.nonzero(streamed.T)
    first = np.r_[True, lane[1:] != lane[:-1]]
    following = np.where(np.r_[first[1:], True], ends[-1], np.r_[ends[layer[1:]], 0.0])
    columns = [rings[layer], copies[layer, lane], seconds[layer], following - ends[layer + 1]]
    if swaps is not None:
        columns.append(swaps[layer, lane])
    steps = list(map(Step, *(column.tolist() for column in columns)))
    cuts = [*np.flatnonzero(first).tolist(), len(steps)]
    leads = (loose + ends[layer[first]]).tolist()
    return [(lead, steps[start:end]) for lead, start, end in zip(leads, cuts[:-1], cuts[1:], strict=True)]
