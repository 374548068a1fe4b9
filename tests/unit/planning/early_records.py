"""Small random records in which prefetches matter: short loads behind long passes, on cards that hold nearly all."""

from __future__ import annotations

import random

from examples import component, interval, made

from stowplan_api.record import CalibrationRecord

NAMES = ("encoder", "denoiser", "second", "vae")


def early_record(
    choose: random.Random, *, ranks: int | None = None, count: int | None = None, tight: str | None = None
) -> CalibrationRecord:
    """Two to four components, one of them with layers, at times in turn, in two workloads, on unlike links."""
    ranks = choose.choice([1, 1, 1, 2]) if ranks is None else ranks
    names = NAMES[: choose.choice([2, 3, 3, 4]) if count is None else count]
    layered = choose.choice([None, *names])
    layers = {name: [choose.choice([0.25, 0.5])] * choose.choice([1, 2]) if name == layered else [] for name in names}
    components, weights = [], 0.0
    for name in names:
        loose = choose.choice([0.25, 0.5, 1.0, 1.5])
        weights += loose + sum(layers[name])
        components.append(component(name, loose, layers[name]))
    turns = [*names, *choose.choices(names, k=choose.choice([0, 0, 1, 2]))]
    if choose.random() < 0.4:
        turns.insert(choose.randrange(len(turns)), "")
    intervals = [
        interval(
            name or None,
            choose.choice([1, 3]),
            choose.choice([0.125, 0.25, 1.0]),
            layers=len(layers[name]) if name else 0,
            seconds=choose.choice([0.01, 0.04]),
            loose=choose.choice([0.0, 0.02, 0.05, 0.2]),
        )
        for name in turns
    ]
    tight = tight or choose.choice(["device", "device", "device", "pins", "host", "all"])
    record = made(
        components,
        intervals,
        card=weights * choose.uniform(0.5, 1.05) + 0.75,
        pinnable=weights * ranks * choose.uniform(0, 1) if tight in ("pins", "all") else 1000,
        host=weights * ranks * choose.uniform(0.3, 1) if tight in ("host", "all", "moves") else 1000,
        contention=choose.choice([1.0, 1.05]),
        reserve=0.25,
        ranks=ranks,
        pageable=choose.choice([5e9, 20e9]),
    )
    return _twice(record, choose) if choose.random() < 0.3 else record


def _twice(record: CalibrationRecord, choose: random.Random) -> CalibrationRecord:
    """The record with a second workload, which leaves out some intervals."""
    data = record.to_json()
    data["workloads"].append(data["workloads"][0] | {"name": "b", "weight": choose.choice([0.5, 1.0, 3.0])})
    for each in data["intervals"]:
        again = each["runs"][0] | {"workload": "b", "passes": choose.choice([0, 1, 1, 2])}
        each["runs"].append(again)
    return CalibrationRecord.from_json(data)


def unlike(record: CalibrationRecord) -> CalibrationRecord:
    """The record with a last rank that is far from its memory."""
    data = record.to_json()
    data["ranks"][-1]["link"] = data["ranks"][-1]["link"] | {"pageableBytesPerSecond": 3e9}
    return CalibrationRecord.from_json(data)
