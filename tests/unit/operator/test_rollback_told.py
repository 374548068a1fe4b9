"""A rollback is in status, Event and metric within two seconds of the agent's report, whatever was said before."""

from __future__ import annotations

import asyncio

import pytest
from fake_server import FakeServer
from observations import KEY, ago, condition, deployment_of_user, placement, pod
from process import Process, condition_of, controller
from virtual_time import run

from stowplan_operator.kinds import DIFFUSION_DEPLOYMENT, RESIDENCY_PLACEMENT, Json
from stowplan_operator.metrics import Metrics

POD = "wan-7d4-abc"
ROLLBACK = {"time": ago(0), "reason": "TooSlow", "message": "61 s against 50 s", "from": "plan-2", "to": "seed"}
SECONDS = 2.0


def rolls_back(raw: Json) -> None:
    raw["status"] |= {"phase": "RolledBack", "rollbacks": [ROLLBACK]}
    raw["status"]["conditions"].append(condition("RolledBack", "True", "TooSlow"))


def flaps(raw: Json) -> None:
    """Another boot each time, so that gate, Events and status have something to say."""
    entry = raw["status"]["conditions"][-1]
    entry["status"] = "False" if entry["status"] == "True" else "True"


def told(server: FakeServer, process: Process) -> dict[str, object]:
    status = server.get(DIFFUSION_DEPLOYMENT, KEY.name).get("status", {})
    written = [request.body for request in server.writes if request.path.endswith("/events")]
    counted = process.metrics.registry.get_sample_value("stowplan_operator_rollbacks_total", {"reason": "TooSlow"})
    return {
        "status": (status.get("rollbacks"), status.get("lastRollback", {}).get("reason")),
        "condition": condition_of(server, "Degraded").get("reason"),
        "events": [body["reason"] for body in written if body["type"] == "Warning"].count("PlacementRolledBack"),
        "metric": counted,
    }


@pytest.mark.parametrize(
    ("lag", "before"), [(0.0, 0), (0.9, 0), (0.0, 100)], ids=["steady", "a slow watch", "flapping"]
)
def test_a_rollback_is_told_everywhere_within_two_seconds(lag: float, before: int) -> None:
    dd = deployment_of_user(status={})
    server = FakeServer(dd, pod(dd, gate=None), placement())

    async def scenario() -> None:
        process = Process(server, lag=lag)
        process.start()
        await asyncio.sleep(5)
        controller(server)
        await asyncio.sleep(5)
        for _ in range(before):
            server.change(RESIDENCY_PLACEMENT, POD, flaps)
            await asyncio.sleep(0.5)
        server.change(RESIDENCY_PLACEMENT, POD, rolls_back)
        await asyncio.sleep(SECONDS)
        everywhere = {"status": (1, "TooSlow"), "condition": "PlacementRolledBack", "events": 1, "metric": 1.0}
        assert told(server, process) == everywhere
        await asyncio.sleep(400)
        assert told(server, process) == everywhere, "once, through two resyncs"
        await process.stop()

    run(scenario())


def test_a_reason_that_is_none_of_ours_makes_no_series_of_its_own() -> None:
    metrics = Metrics()
    for reason in ("TooSlow", "x" * 100, "y" * 100):
        metrics.rolled_back(reason)
    value = metrics.registry.get_sample_value
    assert value("stowplan_operator_rollbacks_total", {"reason": "TooSlow"}) == 1
    assert value("stowplan_operator_rollbacks_total", {"reason": "Other"}) == 2
