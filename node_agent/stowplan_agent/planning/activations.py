"""The largest activations beside which a placement still fits: what to aim for with a smaller shape.

The same line of thought as in `card`: each selection leaves so many bytes to activations, which a line of arithmetic
tells. A selection that leaves more than the most known raises it, and where no selection leaves a byte more, it is the
most. The last question is asked in every case: it is the proof.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stowplan_agent.planning.card import fitting, held_in_intervals
from stowplan_agent.planning.labels import Labels
from stowplan_agent.planning.limits import activation_bytes, reserve_bytes
from stowplan_agent.planning.requests import with_activations
from stowplan_agent.planning.rows import Rows
from stowplan_agent.planning.setting import Setting
from stowplan_agent.planning.table import Ints


def most_activations(setting: Setting) -> int | None:
    """Bytes to which activations of all intervals would have to fall; None where nothing fits even without any.

    Only for a record of which no placement fits.
    """
    pools = [space.smallest for space in setting.spaces]
    known: int | None = None
    most = 0
    while True:
        frame = setting.frame_with(with_activations(setting.record, most))
        labels = fitting(setting, frame, pools, host=frame.host_scarce)
        if not len(labels):
            return known
        known = int(_left(setting, pools, labels).max())
        most = known + 1


def _left(setting: Setting, pools: Sequence[Rows], labels: Labels) -> Ints:
    """Bytes that each label leaves to activations in the tightest interval whose own ones are larger."""
    record = setting.record
    unbounded = np.iinfo(np.int64).max
    left = np.full(len(labels), unbounded)
    for interval, held in held_in_intervals(setting, pools, labels):
        for place, rank in enumerate(record.ranks):
            room = rank.capacity_bytes - reserve_bytes(record, interval, rank) - rank.outside_bytes - held
            left = np.where(room < activation_bytes(interval, place), np.minimum(left, room), left)
    return left
