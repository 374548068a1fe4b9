"""Records for tests: those of the folder beside, and small ones made by hand or at random."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stowplan_api.placement import ComponentPlacement, GroupPlacement, Placement
from stowplan_api.plan import Plan
from stowplan_api.record import CalibrationRecord

FOLDER = Path(__file__).parent / "records"
GIB = 1 << 30
MIB = 1 << 20
SMALL = sorted(path.name for path in (FOLDER / "small").glob("*.json") if ".current." not in path.name)


def record_of(name: str) -> CalibrationRecord:
    return CalibrationRecord.read(FOLDER / name)


def placement_of(name: str) -> Placement:
    return Placement.read(FOLDER / name)


def component(name: str, loose: float, layers: Sequence[float] = (), fixed: Any = None) -> dict[str, Any]:
    """A component of ``loose`` GiB and one group ``blocks`` with layers of the given GiB."""
    groups = [{"name": "blocks", "layerBytes": [int(layer * GIB) for layer in layers]}] if layers else []
    return {"name": name, "looseBytes": int(loose * GIB), "fixed": fixed, "groups": groups}


def interval(
    name: str | None, passes: int, activation: float, *, layers: int = 0, seconds: float = 0.01, loose: float = 0.01
) -> dict[str, Any]:
    """One workload ``a``; ``activation`` in GiB on each rank (filled in by `made`)."""
    return {
        "component": name,
        "entry": "forward" if name else "prepare",
        "runs": [
            {
                "workload": "a",
                "passes": passes,
                "activationBytes": [int(activation * GIB)],
                "looseSeconds": loose,
                "layerSeconds": {"blocks": [seconds] * layers} if layers else {},
            }
        ],
    }


def made(
    components: list[dict[str, Any]],
    intervals: list[dict[str, Any]],
    *,
    card: float,
    pinnable: float = 1000,
    host: float = 1000,
    contention: float = 1.05,
    reserve: float | None = None,
    ranks: int = 1,
    pageable: float = 6e9,
    peers: float = 0,
) -> CalibrationRecord:
    for one in intervals:
        for run in one["runs"]:
            run["activationBytes"] = run["activationBytes"] * ranks
    link = {
        "pinnedBytesPerSecond": 25e9,
        "pageableBytesPerSecond": pageable,
        "latencySeconds": 2e-5,
        "contention": contention,
    }
    return CalibrationRecord.from_json(
        {
            "apiVersion": "stowplan.dev/v1alpha1",
            "kind": "CalibrationRecord",
            "model": {"name": "made", "pipeline": "none", "fingerprint": "made"},
            "workloads": [{"name": "a", "width": 64, "height": 64, "steps": 1}],
            "nodes": [{"name": "node-0", "pinnableBytes": int(pinnable * GIB), "hostBytes": int(host * GIB)}],
            "ranks": [
                {
                    "rank": rank,
                    "node": "node-0",
                    "device": "card",
                    "peerBytesPerSecond": peers,
                    "capacityBytes": int(card * GIB),
                    "outsideBytes": 0,
                    "reserveBytes": None if reserve is None else int(reserve * GIB),
                    "link": link,
                }
                for rank in range(ranks)
            ],
            "components": components,
            "intervals": intervals,
        }
    )


def layerwise(
    name: str, resident: int, pins: Sequence[int] = (0,), *, slots: int = 2, **rest: Any
) -> ComponentPlacement:
    loose = rest.pop("loose", "Permanent")
    group = GroupPlacement(name="blocks", resident_layers=resident, slots=slots, pinned_layers=tuple(pins), **rest)
    return ComponentPlacement(name=name, mode="Layerwise", loose_lifetime=loose, groups=(group,))


def resident(name: str) -> ComponentPlacement:
    return ComponentPlacement(name=name, mode="Resident")


def offload(name: str, pins: Sequence[int] = (0,), *, prefetch: bool = False) -> ComponentPlacement:
    return ComponentPlacement(name=name, mode="Offload", prefetch=prefetch, pinned_bytes=tuple(pins))


def random_record(seed: int) -> CalibrationRecord:
    """Up to two components of up to three layers, on a card and a node that may not hold it all."""
    choose = random.Random(seed)
    ranks = choose.choice([1, 1, 2])
    components, intervals, weights = [], [], 0.0
    for name in ["encoder", "denoiser"][: choose.choice([1, 2, 2])]:
        layers = [choose.uniform(0.2, 1) for _ in range(choose.choice([0, 2, 3]))]
        loose = choose.choice([0.0, choose.uniform(0.1, 1)]) if layers else choose.uniform(0.3, 2)
        weights += loose + sum(layers)
        components.append(component(name, loose, layers))
        seconds, passes = choose.uniform(0.005, 0.05), choose.choice([1, 2, 9])
        intervals.append(
            interval(name, passes, choose.uniform(0.1, 1), layers=len(layers), seconds=seconds, loose=seconds)
        )
    if choose.random() < 0.5:
        intervals.insert(1, interval(None, 1, choose.uniform(0.1, 1)))
    if choose.random() < 0.3:
        intervals.append(interval(components[0]["name"], choose.choice([0, 1]), choose.uniform(0.1, 1)))
    return made(
        components,
        intervals,
        card=choose.uniform(0.5, 1.2) * weights + 1,
        pinnable=choose.choice([1000, choose.uniform(0, 1) * weights * ranks]),
        host=choose.choice([1000, choose.uniform(0, 1.1) * weights * ranks]),
        contention=choose.choice([1.0, 1.0, 1.1]),
        reserve=0.5,
        ranks=ranks,
        pageable=choose.choice([5e9, 20e9]),
    )


def small_record(
    choose: random.Random, *, ranks: int | None = None, tight: str | None = None, count: int | None = None
) -> CalibrationRecord:
    """One or two components of up to two layers, tight in one thing or another, and sometimes in all."""
    ranks = choose.choice([1, 1, 1, 2]) if ranks is None else ranks
    components, intervals, weights = [], [], 0.0
    for name in ["encoder", "denoiser"][: count or choose.choice([1, 2, 2, 2])]:
        layers = [choose.choice([0.25, 0.5, 0.75])] * choose.choice([0, 1, 2, 2 if ranks > 1 else 3])
        loose = choose.choice([0.0, 0.5]) if layers else choose.choice([0.5, 1.0, 1.5])
        weights += loose + sum(layers)
        components.append(component(name, loose, layers))
        seconds = choose.choice([0.004, 0.02, 0.08])
        activation = choose.choice([0.125, 0.5])
        intervals.append(
            interval(name, choose.choice([1, 2, 9]), activation, layers=len(layers), seconds=seconds, loose=0.01)
        )
    if choose.random() < 0.4:
        intervals.insert(1, interval(None, 1, choose.choice([0.125, 1.0])))
    tight = tight or choose.choice(["device", "device", "pins", "host", "all", "nothing"])
    return made(
        components,
        intervals,
        card=weights * (choose.uniform(0.3, 1.05) if tight != "nothing" else 2) + 0.75,
        pinnable=weights * ranks * choose.uniform(0, 1) if tight in ("pins", "all") else 1000,
        host=weights * ranks * choose.uniform(0.1, 0.7 if tight == "moves" else 1)
        if tight in ("host", "all", "moves")
        else 1000,
        contention=choose.choice([1.0, 1.05, 1.2]),
        reserve=0.25,
        ranks=ranks,
        pageable=choose.choice([5e9, 20e9]),
    )


def placed(plan: Plan) -> Placement:
    assert plan.placement is not None
    return plan.placement


def always(entry: ComponentPlacement, layers: int) -> int:
    """Layers that are on the device for good."""
    if entry.mode != "Layerwise":
        return layers if entry.mode == "Resident" else 0
    return sum(group.resident_layers for group in entry.groups or () if group.lifetime == "Permanent")
