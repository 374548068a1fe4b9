"""When nothing fits: where it fails, by how many bytes, and the smallest change that would make it fit.

An infeasible record is an answer with numbers, not an error.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from stowplan_agent.planning.card import UNLIMITED, fitting, smallest_card
from stowplan_agent.planning.limits import activation_bytes, with_device_memory
from stowplan_agent.planning.price import cost
from stowplan_agent.planning.setting import Setting
from stowplan_api.placement import Placement
from stowplan_api.plan import Change, Violation
from stowplan_api.quantity import for_people
from stowplan_api.record import CalibrationRecord


def smallest_peak(setting: Setting) -> tuple[Placement, int, bool]:
    """A placement that needs the smallest card, that card's bytes, and whether it is within the limits of host memory.

    Host limits are kept if that is possible at all. It locks nothing, and of those that need the same card it holds the
    fewest bytes for good.
    """
    pools = [space.smallest for space in setting.spaces]
    for within_host in (True, False):
        host = setting.frame.host if within_host else UNLIMITED
        card = smallest_card(setting, host, pools)
        if card is None:
            continue
        frame = replace(setting.frame_with(with_device_memory(setting.record, card)), host=host)
        labels = fitting(setting, frame, pools)
        one = int(np.lexsort(labels.columns[:, 2::-1].T)[0])
        rows = zip(setting.spaces, pools, labels.rows[one], strict=True)
        return Placement(components=tuple(space.entry(pool, int(row)) for space, pool, row in rows)), card, within_host
    raise AssertionError("with unlimited memory the options of every component are allowed")


def shortfalls_of(record: CalibrationRecord, placement: Placement) -> tuple[Violation, ...]:
    """What the placement breaks, the largest shortage first."""
    return tuple(sorted(cost(record, placement).violations, key=lambda one: -one.short_bytes))


def changes_that_fit(setting: Setting, card: int, within_host: bool) -> tuple[Change, ...]:
    """The smallest device memory, host memory or activations with which a placement exists, each on its own.

    ``card`` is the smallest card, ``within_host`` whether it needs no more host memory than there is.
    """
    also = "" if within_host else ", and more host memory as well"
    message = f"{for_people(card)} ({card} bytes) of device memory a rank for this shape{also}"
    changes = [Change(what="deviceMemory", needed_bytes=card, message=message)]
    host = _least_host(setting)
    if host is not None:
        message = f"{for_people(host)} ({host} bytes) of host memory a node for this shape on this card"
        changes.append(Change(what="hostMemory", needed_bytes=host, message=message))
    elif within_host and (shape := _shape(setting.record, card)) is not None:
        changes.append(shape)
    return tuple(changes)


def _least_host(setting: Setting) -> int | None:
    """Host memory that every node needs on this card; None when the card is too small whatever the host has."""
    frame = replace(setting.frame, host=UNLIMITED)
    columns = fitting(setting, frame, [space.smallest for space in setting.spaces]).columns
    ranks = int(frame.ranks_of.sum(axis=1).max())
    return int(columns[:, 2].min()) * ranks if len(columns) else None


def _shape(record: CalibrationRecord, card: int) -> Change | None:
    """A smaller shape, unless the card is too small even for one without activations."""
    short = card - min(rank.capacity_bytes for rank in record.ranks)
    largest = max(
        (activation_bytes(interval, rank), index)
        for index, interval in enumerate(record.intervals)
        for rank in range(len(record.ranks))
    )
    if short >= largest[0]:
        return None
    interval = record.intervals[largest[1]]
    name = f"{interval.component} {interval.entry}" if interval.component else interval.entry
    message = (
        f"a smaller shape: the card is {for_people(short)} too small, and the largest activations are "
        f"{for_people(largest[0])}, in {name}"
    )
    return Change(what="shape", needed_bytes=None, message=message)
