"""The operator beside a real API server: a fleet that grows, events that reach gates, idle minutes, a restart.

    PYTHONPATH=tests python benchmarks/operator_scale.py [--deployments 100 300 1000] [--idle 600] > results/...json

Prints one JSON document. The API server, etcd, controllers and scheduler are those of the local cluster (made for this
run, and removed); nodes are KWOK's with stages that leave readiness gates to their owner; agents are played here, and
write their statuses through the API server as real ones do. Everything shares this machine's cores, the agents and the
watching eye included, so each figure is an upper bound of what the operator does alone.

For each size of the fleet (five pods a deployment):

- ``grown``: seconds until every deployment is Ready; the operator's CPU time and requests a pod.
- ``gate``: seconds from sending an agent's report to seeing the gate follow it in a watch: closing and opening, at each
  of ``--rates`` reports a second spread over the fleet. Bar: 99th percentile 1 s. A report makes about seven writes, of
  which Kubernetes' own controllers make five. At ten reports a second API server and controllers are near the end of
  two cores, and it is their queue that is measured; at two a second, five thousand pods start anew every 42 minutes.
- ``event``: CPU seconds and requests of the operator for each report, at the highest rate. ``flat`` is its CPU against
  the smallest fleet's.
- ``memory``: resident bytes once settled, and the highest so far. Bar: 200 MiB.

Once, at the largest: ``together`` (one pod of each deployment, up to 1,000, reports at the same moment), ``idle``
(writes while nothing happens: bar 0) and ``restart`` (an operator that was away, one gate in a hundred wrong meanwhile:
seconds until every deployment was decided anew and every gate is right: bar 30 s).

(It is not called operator.py: a script's folder comes first on Python's path, and that name is the standard library's.)
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cluster.played import Operator, Studio
from cluster.scale.fleet import Fleet, SimulatedPod
from cluster.scale.nodes import simulated
from localcluster import cluster as local
from localcluster.client import Cluster
from localcluster.layout import Layout
from result import heading, say

NAMESPACE: Final = "fleet"
PODS_EACH: Final = 5
NODES: Final = 20
RESYNC_SECONDS: Final = 180
"""The chart's default."""
BAR_GATE, BAR_MEMORY, BAR_RESTART = 1.0, 200 << 20, 30.0
TICKS: Final = os.sysconf("SC_CLK_TCK")
REQUESTS: Final = "stowplan_operator_api_requests_total"
RECONCILES: Final = "stowplan_operator_reconciles_total"
VERBS: Final = ("apply", "create", "patch", "get", "list")


@dataclass(frozen=True)
class Spent:
    """What the operator has used since its start."""

    cpu: float
    requests: dict[str, float]

    @classmethod
    def by(cls, operator: Operator) -> Spent:
        """Of this process so far."""
        fields = Path(f"/proc/{operator.pid}/stat").read_text().rsplit(") ", 1)[1].split()
        cpu = (int(fields[11]) + int(fields[12])) / TICKS
        return cls(cpu, {verb: operator.counted(REQUESTS, verb=verb) for verb in VERBS})

    def since(self, before: Spent, per: int) -> dict[str, Any]:
        """What was used since then, for each of so many things."""
        requests = {verb: (self.requests[verb] - before.requests[verb]) / per for verb in VERBS}
        return {"cpu_seconds": (self.cpu - before.cpu) / per, "requests": {k: round(v, 3) for k, v in requests.items()}}


def memory(operator: Operator) -> dict[str, Any]:
    """Resident bytes now and at most."""
    lines = Path(f"/proc/{operator.pid}/status").read_text().splitlines()
    kib = {
        name: int(value.split()[0])
        for name, _, value in (line.partition(":") for line in lines)
        if "VmRSS" in name or "VmHWM" in name
    }
    found = {"resident": kib["VmRSS"] << 10, "peak": kib["VmHWM"] << 10}
    return found | {"ratio": found["resident"] / BAR_MEMORY, "peak_ratio": found["peak"] / BAR_MEMORY}


def spread(seconds: list[float]) -> dict[str, Any]:
    """A sample's median, 99th percentile and highest, and the bar."""
    slow = statistics.quantiles(seconds, n=100, method="inclusive")[98]
    found = {"count": len(seconds), "p50": statistics.median(seconds), "p99": slow, "max": max(seconds)}
    return found | {"ratio": slow / BAR_GATE}


async def until(probe: Callable[[], Any], what: str, seconds: float = 1800) -> None:
    """Poll, without a thread of its own, until it is so."""
    deadline = time.monotonic() + seconds
    while not probe():
        if time.monotonic() > deadline:
            raise TimeoutError(f"after {seconds:.0f} s it is still not so that {what}")
        await asyncio.sleep(0.25)


async def grown(fleet: Fleet, operator: Operator, before: int, deployments: int) -> dict[str, Any]:
    """Add deployments until there are so many; what that took."""
    spent, began = Spent.by(operator), time.monotonic()
    names = [f"wan-{number}" for number in range(before, deployments)]
    await fleet.add(NAMESPACE, names, PODS_EACH)
    await until(lambda: fleet.settled(deployments, deployments * PODS_EACH), f"{deployments} deployments are Ready")
    seconds = time.monotonic() - began
    await quiet(operator)
    pods = len(names) * PODS_EACH
    return {
        "seconds": round(seconds, 1),
        "pods_a_second": pods / seconds,
        "each_pod": Spent.by(operator).since(spent, pods),
    }


async def quiet(operator: Operator, seconds: float = 3.0) -> None:
    """Wait until nothing was written for so long."""
    count, since = operator.writes(), time.monotonic()
    while time.monotonic() - since < seconds:
        await asyncio.sleep(0.5)
        if (found := operator.writes()) != count:
            count, since = found, time.monotonic()


async def events(
    fleet: Fleet, operator: Operator, count: int, rates: list[float], dice: random.Random
) -> dict[str, Any]:
    """Single reports at steady rates: each of so many pods starts anew, and validates again."""
    gate = {}
    for rate in sorted(rates):
        spent = Spent.by(operator)
        gate[f"{rate:g}"], reports = await at_rate(fleet, count, rate, dice)
        await quiet(operator)
    return {"gate": gate, "event": Spent.by(operator).since(spent, reports)}


async def at_rate(fleet: Fleet, count: int, rate: float, dice: random.Random) -> tuple[dict[str, Any], int]:
    """Seconds to the gate at one rate, and how many reports there were."""
    found = {}
    chosen = dice.sample(sorted(fleet.pods), k=min(count, len(fleet.pods)))
    for name, validated in (("closing", False), ("opening", True)):
        measured = [asyncio.create_task(coro) async for coro in paced(fleet, chosen, validated, rate)]
        found[name] = spread(await asyncio.gather(*measured))
        await until(lambda: all(fleet.pods[place].ready is validated for place in chosen), "pods follow")  # noqa: B023
    await until(lambda: all(fleet.ready.values()), "every deployment is Ready again")
    return found, 2 * len(chosen)


async def paced(fleet: Fleet, chosen: list[Any], validated: bool, rate: float) -> Any:
    """Measurements to start, one at a time, so many a second."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    for number, place in enumerate(chosen):
        await asyncio.sleep(max(0.0, began + number / rate - loop.time()))
        yield fleet.seconds_to_gate(fleet.pods[place], validated)


async def together(fleet: Fleet, operator: Operator) -> dict[str, Any]:
    """One pod of each deployment reports at the same moment, as after a network that was away."""
    first: dict[str, SimulatedPod] = {}
    for (_, name), pod in sorted(fleet.pods.items()):
        first.setdefault(name.rsplit("-", 2)[0], pod)
    found = {}
    for name, validated in (("closing", False), ("opening", True)):
        found[name] = spread(await asyncio.gather(*(fleet.seconds_to_gate(pod, validated) for pod in first.values())))
    await until(lambda: all(fleet.ready.values()), "every deployment is Ready again")
    await quiet(operator)
    return found


async def idle(operator: Operator, seconds: float) -> dict[str, Any]:
    """Do nothing, and see what the operator does."""
    before, spent = operator.writes(), Spent.by(operator)
    await asyncio.sleep(seconds)
    used = Spent.by(operator)
    cores = (used.cpu - spent.cpu) / seconds if seconds else 0.0
    return {"seconds": seconds, "writes": operator.writes() - before, "cores": cores}


async def restart(fleet: Fleet, operator: Operator, dice: random.Random) -> dict[str, Any]:
    """Away, while one agent in a hundred starts anew; back, and everything is right again."""
    operator.stop()
    chosen = [fleet.pods[place] for place in dice.sample(sorted(fleet.pods), k=max(1, len(fleet.pods) // 100))]
    for pod in chosen:
        await fleet.report(pod, "Warm", False, "0" * 32)
    began = time.monotonic()
    starting = asyncio.create_task(asyncio.to_thread(operator.start))
    await until(lambda: all(pod.gate == "False" for pod in chosen), "gates of pods that started anew are closed")
    closed = time.monotonic() - began
    await starting
    await until(lambda: operator.counted(RECONCILES) >= len(fleet.ready), "every deployment was decided")
    decided = time.monotonic() - began
    await quiet(operator)
    seconds = max(closed, decided)
    found = {
        "seconds": seconds,
        "closed": closed,
        "decided": decided,
        "gates": len(chosen),
        "writes": operator.writes(),
    }
    found |= {"ratio": seconds / BAR_RESTART, "cpu_seconds": Spent.by(operator).cpu, "memory": memory(operator)}
    await asyncio.gather(*(fleet.seconds_to_gate(pod, True) for pod in chosen))
    await until(lambda: all(fleet.ready.values()), "every deployment is Ready again")
    return found


async def measured(fleet_of: Fleet, operator: Operator, options: argparse.Namespace) -> dict[str, Any]:
    """Every figure, smallest fleet first."""
    dice, sizes, before = random.Random(0), [], 0
    async with fleet_of as fleet:
        for deployments in options.deployments:
            size: dict[str, Any] = {"deployments": deployments, "pods": deployments * PODS_EACH}
            size["grown"] = await grown(fleet, operator, before, deployments)
            say(f"{deployments} deployments are Ready after {size['grown']['seconds']} s")
            size |= await events(fleet, operator, options.events, options.rates, dice)
            size["memory"] = memory(operator)
            sizes.append(size)
            size["flat"] = size["event"]["cpu_seconds"] / sizes[0]["event"]["cpu_seconds"]
            say(f"event to gate: {size['gate']}; memory: {size['memory']}")
            before = deployments
        document: dict[str, Any] = {"sizes": sizes}
        for name, doing in steps(fleet, operator, options, dice):
            document[name] = await doing
            say(f"{name}: {document[name]}")
        return document


def steps(
    fleet: Fleet, operator: Operator, options: argparse.Namespace, dice: random.Random
) -> Iterator[tuple[str, Awaitable[dict[str, Any]]]]:
    """What is measured once, at the largest size."""
    yield "together", together(fleet, operator)
    yield "idle", idle(operator, options.idle)
    yield "restart", restart(fleet, operator, dice)


@contextmanager
def made_cluster() -> Iterator[Cluster]:
    """A cluster of this run's own: an older one's objects would be in every figure."""
    layout = Layout.from_environment()
    local.prepare(layout, kwok=True)
    if not local.start(layout):
        raise SystemExit("a local cluster runs already; stop it first: PYTHONPATH=tests python -m localcluster stop")
    try:
        yield Cluster.of_layout(layout)
    finally:
        local.stop(layout)


def main() -> None:
    """Measure, and print the document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--deployments", type=int, nargs="+", default=[20, 100, 300, 1000])
    parser.add_argument("--events", type=int, default=300, help="pods that start anew, at each size and rate")
    parser.add_argument("--rates", type=float, nargs="+", default=[2.0, 10.0], help="reports a second")
    parser.add_argument("--idle", type=float, default=600.0, help="seconds")
    parser.add_argument("--logs", type=Path, help="keep the logs of operator and nodes in this folder")
    options = parser.parse_args()
    # Ended from outside, it still removes its cluster.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="stowplan-scale-") as scratch, made_cluster() as cluster:
        logs = options.logs or Path(scratch)
        cluster.kubectl("create", "namespace", NAMESPACE)
        Studio.with_kinds(cluster, NAMESPACE)
        operator = Operator(cluster, NAMESPACE, logs / "operator.log", resync_seconds=RESYNC_SECONDS, everywhere=True)
        assert cluster.local is not None
        with simulated(cluster, NODES, logs / "kwok.log"):
            operator.start()
            try:
                figures = asyncio.run(measured(Fleet(cluster.local), operator, options))
            finally:
                operator.stop()
    machine = {
        "device": f"{os.cpu_count()} cores",
        "python": platform.python_version(),
        "nodes": NODES,
        "rates": options.rates,
    }
    json.dump(heading("operator_scale") | machine | figures, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
