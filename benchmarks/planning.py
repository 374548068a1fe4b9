"""How long the planner takes to prove its answers, over the shapes of real models, on a laptop's kind of machine.

    python benchmarks/planning.py [--only qwen] [--repeat 7] > results/...json

Prints one JSON document. Each figure is a ratio against its bar (below 1 is within it):

- ``solve``: seconds of whole `solve` calls, from a record to an explained plan, for five models on cards of 12 to
  141 GiB with 1 and 8 ranks, and with 8 that have peers. ``single`` is the first solve of each record in this process
  (after one of another record, so that imports do not count), which is what a command line or an agent waits for;
  ``fastest`` the least of ``--repeat`` solves of each. Both are told by the wall and of this process alone (``cpu``),
  which is what a solve takes where the machine is shared. Each plan must be proven: its bound equals its price, or it
  is infeasible and the smallest card that it names is feasible, and one byte less is not.
- ``records``: the same for each record of tests/unit/planning/records, its current placement included.
- ``frontier``: the seconds of 60 sizes of card of one model.
- ``pricing``: 100,000 placements of a component of 60 layers.
- ``import``: a fresh interpreter that imports the planner, less one that imports nothing.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from stowplan_agent.planning import costs, seconds_by_memory, solve, with_device_memory
from stowplan_api.placement import ComponentPlacement, GroupPlacement, Placement
from stowplan_api.plan import Plan
from stowplan_api.record import CalibrationRecord

RECORDS = Path(__file__).parent.parent / "tests" / "unit" / "planning" / "records"
GIB = 1 << 30
MODELS = {
    "wan-2.2-a14b": "wan22-t2v-a14b-h200.json",
    "flux.2": "hard-2-permanent-or-forward-80gib.json",
    "qwen-image": "hard-1-keep-or-die-31gib.json",
    "ltx-2": "hard-8-no-safe-order-48gib.json",
    "hunyuan-video": "hard-9-nothing-to-gain-h200.json",
}
WARM_UP = "small/both-05.json"
"""The record of the first solve, which is not counted: numpy and the planner are loaded in it."""
SIZES = (12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 141)
BARS = {"1 ranks": 0.1, "8 ranks": 1.0, "8 ranks with peers": 1.0}
"""Seconds that the slowest percent of solves may take, by ranks."""
PEER_BYTES_PER_SECOND = 388e9
"""Measured between two H200 of one host."""
BAR_FRONTIER, BAR_PRICING, BAR_IMPORT = 5.0, 10.0, 0.5


def on_ranks(record: CalibrationRecord, ranks: int, peers: float = 0) -> CalibrationRecord:
    """The record on so many equal cards of one node, sequence parallel: a share of the tokens each, all weights.

    ``peers``: bytes a second between them; 0 where they have no access to one another.
    """
    data = record.to_json()
    first = data["ranks"][0] | {"peerBytesPerSecond": peers}
    data["ranks"] = [first | {"rank": rank} for rank in range(ranks)]
    for node in data["nodes"]:
        node["hostBytes"] *= ranks
        node["pinnableBytes"] *= ranks
    for run in (run for interval in data["intervals"] for run in interval["runs"]):
        run["activationBytes"] = [run["activationBytes"][0] // ranks] * ranks
        run["layerSeconds"] = {name: [one / ranks for one in each] for name, each in run["layerSeconds"].items()}
    return CalibrationRecord.from_json(data)


def shapes(only: str) -> Iterator[tuple[str, str, CalibrationRecord]]:
    """Every model on every card, by ranks."""
    for model, name in MODELS.items():
        if only not in model:
            continue
        for ranks in BARS:
            peers = PEER_BYTES_PER_SECOND if "peers" in ranks else 0
            record = on_ranks(CalibrationRecord.read(RECORDS / name), int(ranks.split()[0]), peers)
            for size in SIZES:
                yield f"{model} {size} GiB", ranks, with_device_memory(record, size * GIB)


def proven(record: CalibrationRecord, plan: Plan) -> bool:
    """Whether the plan's own figures hold, checked from outside."""
    if plan.status == "Optimal":
        assert plan.cost is not None
        close = abs(plan.cost.seconds - plan.proof["boundSeconds"]) <= 4e-6 * plan.cost.seconds
        return plan.cost.feasible and close and plan.proof["status"] == "OPTIMAL"
    card = next(change.needed_bytes for change in plan.would_fit if change.what == "deviceMemory")
    assert card is not None
    sizes = seconds_by_memory(record, [card, card - 1])
    also_host = any(violation.constraint != "device" for violation in plan.shortfalls)
    return sizes[card - 1] is None and (sizes[card] is not None or also_host)


def solved(record: CalibrationRecord, current: Placement | None = None, repeat: int = 1) -> dict[str, Any]:
    """One record: the seconds of its first solve, the least of so many, and whether the answer is proven."""
    taken, busy = [], []
    for _ in range(repeat):
        start, before = time.perf_counter(), time.process_time()
        plan = solve(record, current=current)
        taken.append(time.perf_counter() - start)
        busy.append(time.process_time() - before)
    return {
        "single": {"wall": taken[0], "cpu": busy[0]},
        "fastest": {"wall": min(taken), "cpu": min(busy)},
        "status": plan.status,
        "proven": proven(record, plan),
        "seconds": plan.cost.seconds if plan.cost else None,
    }


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def summary(rows: list[dict[str, Any]], bar: float) -> dict[str, Any]:
    """Of single solves and of the fastest ones, by the wall and of this process alone; the bar is for the first."""
    said: dict[str, Any] = {"solves": len(rows), "bar": bar, "allProven": all(row["proven"] for row in rows)}
    for which in ("single", "fastest"):
        said[which] = {}
        for clock in ("wall", "cpu"):
            times = [row[which][clock] for row in rows]
            said[which][clock] = {"p50": percentile(times, 0.5), "p99": percentile(times, 0.99), "max": max(times)}
    return said | {"p99OverBar": said["single"]["wall"]["p99"] / bar}


def pricing() -> dict[str, Any]:
    """100,000 different placements of Qwen-Image's 60 layers."""
    record = CalibrationRecord.read(RECORDS / MODELS["qwen-image"])
    others = [ComponentPlacement(name=one.name, mode="Resident") for one in record.components]
    place = next(i for i, one in enumerate(record.components) if one.name == "transformer")
    many = []
    for number in range(100_000):
        resident = number % 61
        group = GroupPlacement(
            name="transformer_blocks",
            resident_layers=resident,
            policy="Leading" if number // 61 % 2 else "Strided",
            lifetime="Forward" if number // 122 % 2 else "Permanent",
            slots=2 + number // 244 % 2,
            pinned_layers=(number // 488 % (61 - resident),),
        )
        loose = "Forward" if number % 3 else "Permanent"
        entry = ComponentPlacement(name="transformer", mode="Layerwise", loose_lifetime=loose, groups=(group,))
        many.append(Placement(components=(*others[:place], entry, *others[place + 1 :])))
    start = time.perf_counter()
    priced = sum(1 for _ in costs(record, many))
    taken = time.perf_counter() - start
    return {"placements": priced, "seconds": taken, "bar": BAR_PRICING, "overBar": taken / BAR_PRICING}


def importing() -> dict[str, Any]:
    def run(code: str) -> float:
        times = []
        for _ in range(3):
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True)
            times.append(time.perf_counter() - start)
        return min(times)

    taken = run("import stowplan_agent.planning") - run("pass")
    return {"seconds": taken, "bar": BAR_IMPORT, "overBar": taken / BAR_IMPORT}


def frontier() -> dict[str, Any]:
    record = CalibrationRecord.read(RECORDS / MODELS["wan-2.2-a14b"])
    start = time.perf_counter()
    points = seconds_by_memory(record, [int((8 + 1.5 * step) * GIB) for step in range(60)])
    taken = time.perf_counter() - start
    known = [seconds for seconds in points.values() if seconds is not None]
    falling = all(b <= a * (1 + 2e-6) for a, b in pairwise(known))
    return {"sizes": 60, "seconds": taken, "bar": BAR_FRONTIER, "overBar": taken / BAR_FRONTIER, "falling": falling}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="models whose name has this in it; then nothing but solves")
    parser.add_argument("--repeat", type=int, default=1, help="solves of each record")
    given = parser.parse_args()
    result: dict[str, Any] = {"machine": platform.machine(), "python": platform.python_version(), "solve": {}}
    solve(CalibrationRecord.read(RECORDS / WARM_UP))
    rows: dict[str, list[dict[str, Any]]] = {ranks: [] for ranks in BARS}
    for name, ranks, record in shapes(given.only):
        rows[ranks].append({"name": name} | solved(record, repeat=given.repeat))
        print(f"{ranks} {rows[ranks][-1]}", file=sys.stderr)
    for ranks, bar in BARS.items():
        told = summary(rows[ranks], bar)
        print(f"{ranks} {told}", file=sys.stderr)
        result["solve"][ranks] = told | {"rows": rows[ranks]}
    if not given.only:
        result["records"] = []
        for path in sorted([*RECORDS.glob("*.json"), *RECORDS.glob("small/*.json")]):
            if path.name.endswith(".current.json"):
                continue
            beside = path.with_suffix(".current.json")
            current = Placement.read(beside) if beside.exists() else None
            row = {"name": path.stem} | solved(CalibrationRecord.read(path), current, given.repeat)
            print(row, file=sys.stderr)
            result["records"].append(row)
        result |= {"frontier": frontier(), "pricing": pricing(), "import": importing()}
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
