"""When nothing fits: where it fails, by how many bytes, and the smallest change that would make it fit.

An infeasible record is an answer with numbers, not an error. Every change is the smallest of its kind: with it a
placement exists, and with a byte less (of activations: a byte more) none does. Pins are never the reason: what cannot
be pinned is pageable.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from stowplan_agent.planning.activations import most_activations
from stowplan_agent.planning.card import UNLIMITED, fitting, smallest_card
from stowplan_agent.planning.limits import activation_bytes, with_device_memory
from stowplan_agent.planning.price import cost
from stowplan_agent.planning.requests import with_workloads
from stowplan_agent.planning.setting import Setting, setting_of
from stowplan_agent.planning.violations import interval_name
from stowplan_api.placement import Placement
from stowplan_api.plan import Change, Violation
from stowplan_api.quantity import for_people
from stowplan_api.record import CalibrationRecord, Workload


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
    """The smallest device memory, host memory or shape with which a placement exists, each on its own.

    ``card`` is the smallest card, ``within_host`` whether it needs no more host memory than there is; if it does, both
    change together.
    """
    found = [_device(setting, card, within_host), _host(setting), _activations(setting), _workloads(setting)]
    return tuple(change for change in found if change is not None)


def _device(setting: Setting, card: int, within_host: bool) -> Change:
    message = f"{for_people(card)} ({card} bytes) of device memory a rank for this shape"
    if within_host:
        return Change(what="deviceMemory", needed_bytes=card, message=message)
    host = _least_host(setting, with_device_memory(setting.record, card))
    assert host is not None
    also = f"{message}, together with {for_people(host)} ({host} bytes) of host memory a node"
    return Change(what="deviceMemory", needed_bytes=card, also_host_bytes=host, message=also)


def _host(setting: Setting) -> Change | None:
    host = _least_host(setting, setting.record)
    if host is None:
        return None
    message = f"{for_people(host)} ({host} bytes) of host memory a node for this shape on this card"
    return Change(what="hostMemory", needed_bytes=host, message=message)


def _least_host(setting: Setting, record: CalibrationRecord) -> int | None:
    """Host memory that every node needs on the cards of ``record``; None when those are too small whatever it has."""
    frame = replace(setting.frame_with(record), host=UNLIMITED)
    columns = fitting(setting, frame, [space.smallest for space in setting.spaces]).columns
    copies = int(frame.ranks_of.sum(axis=1).max())
    return int(columns[:, 2].min()) * copies if len(columns) else None


def _activations(setting: Setting) -> Change | None:
    """A smaller shape, unless this machine is too small even for one without activations."""
    most = most_activations(setting)
    if most is None:
        return None
    record = setting.record
    largest, index, place = max(
        (activation_bytes(interval, place), -index, -place)
        for index, interval in enumerate(record.intervals)
        for place in range(len(record.ranks))
    )
    name, rank = interval_name(record, -index), record.ranks[-place].rank
    message = (
        f"a smaller shape: activations of at most {for_people(most)} ({most} bytes); "
        f"interval {-index} ({name}) on rank {rank} has {for_people(largest)} at this one"
    )
    return Change(what="shape", needed_bytes=most, interval=-index, interval_name=name, rank=rank, message=message)


def _workloads(setting: Setting) -> Change | None:
    """The workloads that fit together as they are: the first one if it does, then the heaviest that still do."""
    record, kept = setting.record, list[str]()
    if len(record.workloads) == 1:
        return None
    first, *rest = record.workloads
    for workload in (first, *sorted(rest, key=lambda one: -one.weight)):
        if _fits(with_workloads(record, [*kept, workload.name])):
            kept.append(workload.name)
    if not kept:
        return None
    stays = ", ".join(_in_words(one) for one in record.workloads if one.name in kept)
    goes = ", ".join(_in_words(one) for one in record.workloads if one.name not in kept)
    return Change(what="workloads", workloads=tuple(kept), message=f"only {stays}; without {goes}")


def _fits(record: CalibrationRecord) -> bool:
    setting = setting_of(record)
    return len(fitting(setting, setting.frame, [space.smallest for space in setting.spaces], host=True)) > 0


def _in_words(workload: Workload) -> str:
    frames = f", {workload.frames} frames" if workload.frames > 1 else ""
    return f"workload {workload.name} ({workload.width} x {workload.height}{frames})"
