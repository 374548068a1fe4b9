"""The whole loop against an API server that is busy, slow, away or restarted: it waits, and then it is right."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest
from fake_server import FakeServer, Fault, Request
from observations import condition, deployment_of_user, placement, pod
from process import RESYNC, Process, condition_of, controller
from virtual_time import run

from stowplan_api.contract import READINESS_GATE
from stowplan_operator.kinds import DEPLOYMENT, POD, RESIDENCY_PLACEMENT, SERVICE, Json

POD_NAME = "wan-7d4-abc"


def server_with_a_validated_pod() -> FakeServer:
    dd = deployment_of_user(status={})
    return FakeServer(dd, pod(dd, gate=None), placement())


def gate_of(server: FakeServer) -> str | None:
    found = server.get(POD, POD_NAME)["status"]["conditions"]
    return next((entry["status"] for entry in found if entry["type"] == READINESS_GATE), None)


def is_patch_of_gate(request: Request) -> bool:
    return request.method == "PATCH" and "/pods/" in request.path


def play(server: FakeServer, scenario: Callable[[Process], Awaitable[None]], *, lag: float = 0.0) -> None:
    """Run a scenario beside one operator; a worker or a resync that ended is a failure."""

    async def whole() -> None:
        process = Process(server, lag=lag)
        process.start()
        await scenario(process)
        assert process.alive()
        await process.stop()

    run(whole())


def fails(times: int, fault: Fault, on: Callable[[Request], bool]) -> Callable[[Request], Fault | None]:
    left = [times]

    def decide(request: Request) -> Fault | None:
        if not on(request) or not left[0]:
            return None
        left[0] -= 1
        return fault

    return decide


async def settle(server: FakeServer, seconds: float = 30.0) -> None:
    """Let everything happen, the Deployment's controller included."""
    await asyncio.sleep(seconds)
    controller(server)
    await asyncio.sleep(seconds)


def test_without_faults_it_is_ready_and_then_silent() -> None:
    server = server_with_a_validated_pod()

    async def scenario(_: Process) -> None:
        await settle(server)
        assert gate_of(server) == "True"
        assert condition_of(server, "Ready")["status"] == "True"
        before = len(server.writes)
        await asyncio.sleep(10 * RESYNC)
        assert len(server.writes) == before, "ten resyncs, no write"

    play(server, scenario)


FAULTS = {
    "429": Fault(429, "too many requests"),
    "500": Fault(500, "etcdserver: request timed out"),
    "503": Fault(503, "apiserver is shutting down"),
    "504": Fault(504, "timeout"),
    "no answer": Fault(0),
    "the answer is lost": Fault(0, done=True),
    "a conflict": Fault(409, "the object has been modified"),
    "slow until patience ends": Fault(0, seconds=100.0),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_each_write_that_fails_three_times_is_repeated_until_it_is_done(fault: Fault) -> None:
    kinds = ("/pods/", "/residencyplacements", "/diffusiondeployments/", "/deployments/", "/services/", "/events")
    for part in kinds:
        server = FakeServer(deployment_of_user(status={}), pod(deployment_of_user(), gate=None))
        server.fault = fails(3, fault, lambda request, part=part: request.writes and part in request.path)  # type: ignore[misc]

        async def scenario(_: Process, server: FakeServer = server) -> None:
            await settle(server, 200.0)
            report = placement()
            report["spec"] = server.get(RESIDENCY_PLACEMENT, POD_NAME)["spec"]
            report["metadata"] = dict(server.get(RESIDENCY_PLACEMENT, POD_NAME)["metadata"])
            server.put(report)
            await settle(server, 200.0)
            assert gate_of(server) == "True"
            assert condition_of(server, "Ready")["status"] == "True"

        play(server, scenario)


def test_a_busy_server_is_left_alone_for_as_long_as_it_asks() -> None:
    server = server_with_a_validated_pod()
    server.fault = fails(1, Fault(429, "busy", retry_after="17"), is_patch_of_gate)
    times: list[float] = []

    async def scenario(_: Process) -> None:
        loop = asyncio.get_running_loop()
        server.watchers.append(lambda *_: times.append(loop.time()) if gate_of(server) == "True" else None)
        await asyncio.sleep(60)
        assert times[0] >= 17

    play(server, scenario)


def test_an_outage_of_ten_minutes_costs_few_requests_and_no_restart() -> None:
    server = server_with_a_validated_pod()

    async def scenario(process: Process) -> None:
        await settle(server)
        server.fault = lambda request: Fault(0, "connection refused")
        server.change(RESIDENCY_PLACEMENT, POD_NAME, lambda raw: raw["status"]["conditions"][-1].update(status="False"))
        before = len(server.requests)
        await asyncio.sleep(600)
        assert len(server.requests) - before < 80
        assert gate_of(server) == "True", "nothing could be written"
        server.fault = lambda request: None
        await asyncio.sleep(65)
        assert gate_of(server) == "False", "the longest delay is a minute"

    play(server, scenario)


def test_a_list_whose_pages_expire_begins_anew_and_nothing_is_taken_for_gone() -> None:
    server = server_with_a_validated_pod()

    async def scenario(process: Process) -> None:
        await settle(server)
        expired = Fault(410, "The provided continue parameter is too old")
        server.fault = fails(2, expired, lambda request: request.method == "GET" and request.path.endswith("/pods"))
        before = len(server.writes)
        await asyncio.sleep(RESYNC + 10)
        assert process.observed.count(POD) == 1
        assert len(server.writes) == before

    play(server, scenario)


def test_a_gate_that_met_a_changed_pod_judges_that_pod_also_when_the_watch_is_silent() -> None:
    server = server_with_a_validated_pod()

    async def scenario(process: Process) -> None:
        process.hears = False
        restarted: list[Json] = []

        def change(request: Request) -> Fault | None:
            if is_patch_of_gate(request) and not restarted:
                restarted.append(server.get(POD, POD_NAME))
                server.change(POD, POD_NAME, _restarted)
            return None

        server.fault = change
        await asyncio.sleep(60)
        assert restarted
        assert gate_of(server) == "False"

    play(server, scenario)


def _restarted(raw: Json) -> None:
    raw["status"]["containerStatuses"][0] |= {
        "restartCount": 1,
        "state": {"running": {"startedAt": "2026-03-01T12:00:30Z"}},
    }


def test_a_server_restored_from_a_backup_has_the_process_start_anew() -> None:
    server = server_with_a_validated_pod()

    async def scenario() -> None:
        process = Process(server)
        process.start()
        await settle(server)
        server.version = 50
        await asyncio.sleep(RESYNC + 10)
        assert not process.alive(), "the liveness probe tells of a task that ended"
        await process.stop()

    run(scenario())


def test_a_hundred_gates_of_one_deployment_do_not_wait_for_each_other() -> None:
    dd = deployment_of_user(status={}, replicas=100)
    server = FakeServer(dd)
    for number in range(100):
        name = f"wan-7d4-{number}"
        server.put(pod(dd, name, uid=f"uid-{number}", gate=None))
        server.put(placement(name, pod_uid=f"uid-{number}"))
    times: list[float] = []

    async def scenario(process: Process) -> None:
        loop = asyncio.get_running_loop()
        server.watchers.append(lambda _, kind, raw: times.append(loop.time()) if kind == POD else None)
        await asyncio.sleep(30)
        assert len(times) == 100
        # A write takes 10 ms here: one after the other they would take a second.
        assert max(times) - min(times) < 0.2

    play(server, scenario)


@pytest.mark.parametrize("seed", range(12))
def test_whatever_fails_for_ten_minutes_the_end_is_right_and_silent(seed: int) -> None:
    dice = random.Random(seed)
    server = server_with_a_validated_pod()
    kinds = list(FAULTS.values())

    async def scenario(process: Process) -> None:
        server.fault = lambda request: dice.choice(kinds) if dice.random() < 0.4 else None
        for _ in range(20):
            await asyncio.sleep(30)
            process.hears = dice.random() < 0.5
            flipped = dice.choice(["True", "False"])
            server.change(
                RESIDENCY_PLACEMENT, POD_NAME, lambda raw, to=flipped: raw["status"]["conditions"][-1].update(status=to)
            )
            if dice.random() < 0.3:
                server.change(SERVICE, "wan", lambda raw: raw["spec"].update(selector={})) if _there(server) else None
        server.fault = lambda request: None
        validated = condition("Validated", "True", "Proven")
        server.change(RESIDENCY_PLACEMENT, POD_NAME, lambda raw: raw["status"].update(conditions=[validated]))
        await settle(server, 2 * RESYNC)
        assert gate_of(server) == "True"
        assert condition_of(server, "Ready")["status"] == "True"
        assert server.get(SERVICE, "wan")["spec"]["selector"] == {"stowplan.dev/deployment": "wan"}
        before = len(server.writes)
        await asyncio.sleep(3 * RESYNC)
        assert len(server.writes) == before

    play(server, scenario, lag=dice.choice([0.0, 0.5, 20.0]))


def _there(server: FakeServer) -> bool:
    return SERVICE.path("studio", "wan") in server.objects and DEPLOYMENT.path("studio", "wan") in server.objects
