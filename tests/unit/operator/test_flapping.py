"""An agent that flaps: its gate closes at once each time, and opens less and less often; nobody else waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from fake_server import FakeServer
from observations import KEY, ago, condition, deployment_of_user, placement, pod
from process import Process, condition_of, controller
from virtual_time import run

from stowplan_api.contract import READINESS_GATE
from stowplan_operator.kinds import DIFFUSION_DEPLOYMENT, POD, RESIDENCY_PLACEMENT, Json

FLAPPING, STEADY = "wan-7d4-abc", "wan-7d4-xyz"
MOMENT = 0.2
"""Seconds within which what is not held back is done."""


def fleet() -> FakeServer:
    dd = deployment_of_user(replicas=2, status={})
    pods = [pod(dd, FLAPPING, gate=None), pod(dd, STEADY, uid="uid-2", gate=None)]
    return FakeServer(dd, *pods, placement(FLAPPING), placement(STEADY, pod_uid="uid-2"))


def says(validated: str, **status: Any) -> Callable[[Json], None]:
    def change(raw: Json) -> None:
        raw["status"]["conditions"][-1]["status"] = validated
        raw["status"] |= status

    return change


def gate(server: FakeServer, name: str) -> str:
    conditions = server.get(POD, name)["status"]["conditions"]
    return next(str(entry["status"]) for entry in conditions if entry["type"] == READINESS_GATE)


def writes(server: FakeServer, path: str) -> int:
    return sum(request.path == path for request in server.writes)


def test_closing_never_waits_and_opening_does_more_and_more() -> None:
    server = fleet()
    status_of_pod = POD.path(KEY.namespace, FLAPPING, "status")

    async def scenario() -> None:
        process = Process(server)
        process.start()
        await asyncio.sleep(1)
        assert gate(server, FLAPPING) == "True"
        opened = 0
        for _ in range(200):
            server.change(RESIDENCY_PLACEMENT, FLAPPING, says("False"))
            await asyncio.sleep(MOMENT)
            assert gate(server, FLAPPING) == "False"
            server.change(RESIDENCY_PLACEMENT, FLAPPING, says("True"))
            await asyncio.sleep(1 - MOMENT)
            opened += gate(server, FLAPPING) == "True"
            assert gate(server, STEADY) == "True"
        assert 30 <= opened <= 30 + 200 / 10 + 1
        assert writes(server, status_of_pod) <= 2 * (opened + 3)

        # Once it stays as it is, the gate opens without any further event.
        await asyncio.sleep(11)
        assert gate(server, FLAPPING) == "True"
        server.change(RESIDENCY_PLACEMENT, STEADY, says("False"))
        await asyncio.sleep(MOMENT)
        assert gate(server, STEADY) == "False"
        server.change(RESIDENCY_PLACEMENT, STEADY, says("True"))
        await asyncio.sleep(MOMENT)
        assert gate(server, STEADY) == "True"
        await process.stop()

    run(scenario())


def test_words_that_change_all_the_time_are_repeated_now_and_then() -> None:
    """A status is of many pods, and each may change it; the last words are there a second after they were said."""
    server = fleet()

    async def scenario() -> None:
        process = Process(server)
        process.start()
        await asyncio.sleep(1)
        controller(server, pods=2)
        for number in range(300):
            component = {
                "name": f"transformer-{number}",
                "mode": "Resident",
                "residentLayers": 0,
                "layers": 0,
                "deviceBytes": 1,
                "pinnedBytes": 0,
                "lifetime": "Permanent",
            }
            server.change(RESIDENCY_PLACEMENT, FLAPPING, says("True", components=[component]))
            await asyncio.sleep(0.1)
        status = DIFFUSION_DEPLOYMENT.path(KEY.namespace, KEY.name, "status")
        assert 80 <= writes(server, status) <= 60 + 30 + 10
        await asyncio.sleep(1)
        assert server.get(DIFFUSION_DEPLOYMENT, KEY.name)["status"]["placement"][0].startswith("transformer-299")
        await process.stop()

    run(scenario())


def test_a_rollback_is_told_within_two_seconds_whatever_else_there_is_to_say() -> None:
    """In status and Event; the agent's own metric counts it when it happens."""
    server = fleet()
    rollback = {"time": ago(1), "reason": "TooSlow", "message": "", "from": "plan", "to": "seed", "measured": ""}
    back = condition("RolledBack", "True", "TooSlow")

    async def scenario() -> None:
        process = Process(server)
        process.start()
        await asyncio.sleep(1)
        for number in range(300):
            server.change(RESIDENCY_PLACEMENT, FLAPPING, says("True", resident=f"{number}/300", components=[]))
            server.change(RESIDENCY_PLACEMENT, FLAPPING, says("True" if number % 2 else "False"))
            await asyncio.sleep(0.1)
        server.change(RESIDENCY_PLACEMENT, STEADY, says("True", rollbacks=[rollback]))
        server.change(RESIDENCY_PLACEMENT, STEADY, lambda raw: raw["status"]["conditions"].insert(0, back))
        await asyncio.sleep(2)
        status = server.get(DIFFUSION_DEPLOYMENT, KEY.name)["status"]
        assert (status["rollbacks"], status["lastRollback"]["pod"]) == (1, STEADY)
        assert condition_of(server, "Degraded")["reason"] == "PlacementRolledBack"
        told = [one.body for one in server.writes if one.path.endswith("/events") and one.body is not None]
        assert [one["related"]["name"] for one in told if one["reason"] == "PlacementRolledBack"] == [STEADY]
        await process.stop()

    run(scenario())
