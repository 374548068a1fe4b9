"""The smallest card on which anything fits: what an infeasible record is answered with.

Each selection needs a card of so many bytes, which a line of arithmetic tells: the reserve grows with the card, so the
bytes in use are divided by what it leaves. A selection that needs less than the smallest card known makes that card
smaller, and where no selection fits a byte less, it is the smallest. The last question is asked in every case: it is
the proof, whatever rules of reserve the intervals have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, repeat
from typing import Final

import numpy as np

from stowplan_agent.planning.frame import Frame
from stowplan_agent.planning.labels import Labels, Ledger
from stowplan_agent.planning.limits import Reserve, activation_bytes, reserve_of, with_device_memory
from stowplan_agent.planning.merge import Merge
from stowplan_agent.planning.rows import ALWAYS, OWN, Rows
from stowplan_agent.planning.setting import Setting
from stowplan_agent.planning.table import Ints
from stowplan_api.record import Interval

UNLIMITED: Final = float(1 << 50)
"""More bytes than any machine has."""
WIDTH: Final = 64
"""Selections that the first look keeps."""


def smallest_card(setting: Setting, host: float, pools: Sequence[Rows]) -> int | None:
    """Bytes of the smallest card on which a selection of ``pools`` fits beside ``host`` bytes of host copies a rank.

    None where none fits any card.
    """
    card, known = int(UNLIMITED), None
    for width in chain([WIDTH], repeat(0)):
        frame = replace(setting.frame_with(with_device_memory(setting.record, card)), host=host)
        labels = fitting(setting, frame, pools, host=host < frame.weights, width=width)
        if len(labels):
            known = int(_needed(setting, pools, labels).min())
            card = known - 1
        elif not width:
            break
    return known


def fitting(setting: Setting, frame: Frame, pools: Sequence[Rows], *, host: bool = True, width: int = 0) -> Labels:
    """Selections that lock nothing, among them all of which no other one takes less.

    ``host`` says whether host copies count; with ``width`` only so many of those that hold least are looked at.
    """
    ledger = Ledger(frame, setting.spaces[0].prices)
    ledger.judged = np.zeros_like(ledger.judged)
    ledger.judged[:2] = True
    ledger.judged[2] = host
    spent = [rows.bytes[:, ALWAYS] + rows.bytes[:, OWN] if width else np.zeros(len(rows)) for rows in pools]
    return Merge(ledger, pools, spent, np.inf).full(width=width or None)


def _needed(setting: Setting, pools: Sequence[Rows], labels: Labels) -> Ints:
    """Bytes of the smallest card of each label: the largest over intervals and ranks."""
    record, needed = setting.record, np.zeros(len(labels), dtype=np.int64)
    for interval, held in held_in_intervals(setting, pools, labels):
        others: dict[Reserve, int] = {}
        for place, rank in enumerate(record.ranks):
            beside, reserve = rank.outside_bytes + activation_bytes(interval, place), reserve_of(record, interval, rank)
            others[reserve] = max(others.get(reserve, 0), beside)
        for reserve, beside in others.items():
            needed = np.maximum(needed, reserve.card_with(held + beside))
    return needed


def held_in_intervals(setting: Setting, pools: Sequence[Rows], labels: Labels) -> Iterator[tuple[Interval, Ints]]:
    """Every interval, with the weight bytes that each label holds in it."""
    own = [rows.bytes[labels.rows[:, c], OWN].astype(np.int64) for c, rows in enumerate(pools)]
    always = labels.columns[:, 0].astype(np.int64)
    for index, interval in enumerate(setting.record.intervals):
        held = always
        for component, space in enumerate(setting.spaces):
            if index in setting.timeline.own[space.component.name]:
                held = held + own[component]
        yield interval, held
