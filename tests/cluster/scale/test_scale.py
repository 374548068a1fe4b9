"""The fleet that `benchmarks/operator_scale.py` measures, small: its kubelets leave gates alone, and gates follow."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cluster.played import Operator, Studio
from cluster.scale.fleet import Fleet
from cluster.scale.nodes import simulated
from localcluster import build
from localcluster.versions import KWOK
from stowplan_api.contract import READINESS_GATE

DEPLOYMENTS, PODS = 3, 2


def gates(studio: Studio) -> set[tuple[str, str]]:
    """Gate and Ready of every pod, as the API server has them."""
    listed = studio.cluster.json("-n", studio.namespace, "get", "pods")["items"]
    conditions = [{one["type"]: one["status"] for one in pod["status"]["conditions"]} for pod in listed]
    return {(found.get(READINESS_GATE, ""), found["Ready"]) for found in conditions}


def test_simulated_kubelets_open_no_gate_and_follow_every_one(
    studio: Studio, operator: Operator, tmp_path: Path
) -> None:
    layout = studio.cluster.local
    assert layout is not None

    async def story() -> None:
        async with Fleet(layout, silent=True) as fleet:
            await fleet.add(studio.namespace, [f"wan-{number}" for number in range(DEPLOYMENTS)], PODS)
            await fleet.until(lambda: len(fleet.booted) == DEPLOYMENTS * PODS)
            closed = await asyncio.to_thread(gates, studio)
            assert {ready for _, ready in closed} == {"False"}
            assert {gate for gate, _ in closed} <= {"", "False"}
            await asyncio.gather(*(fleet.seconds_to_gate(pod, True) for pod in fleet.booted))
            await fleet.until(lambda: fleet.settled(DEPLOYMENTS, DEPLOYMENTS * PODS))
            assert await asyncio.to_thread(gates, studio) == {("True", "True")}
            one = fleet.booted[0]
            await fleet.seconds_to_gate(one, False)
            await fleet.until(lambda: not one.ready)
            assert await asyncio.to_thread(gates, studio) == {("True", "True"), ("False", "False")}

    with simulated(studio.cluster, 2, tmp_path / "kwok.log"):
        asyncio.run(asyncio.wait_for(story(), 150))
        studio.kubectl("delete", "dd", "--all", "--timeout=60s")
    assert "Traceback" not in operator.log()


@pytest.fixture(autouse=True)
def kwok_is_built(studio: Studio) -> None:
    """Once a machine, for two minutes; not within a test's own time."""
    assert studio.cluster.local is not None
    build.ensure(studio.cluster.local, KWOK)
