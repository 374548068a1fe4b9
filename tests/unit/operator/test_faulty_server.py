"""The whole loop against an API server that is busy, slow, away or restarted: it waits, and then it is right."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

import pytest
from fake_server import FakeServer, Fault, Request
from observations import condition, deployment_of_user, placement, pod
from process import RESYNC, Process, condition_of, controller
from virtual_time import run

from stowplan_api.contract import READINESS_GATE
from stowplan_operator.kinds import DEPLOYMENT, DIFFUSION_DEPLOYMENT, POD, RESIDENCY_PLACEMENT, SERVICE, Json

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


def test_k13_a_deployment_that_goes_while_its_children_answer_500_is_let_go() -> None:
    server = FakeServer(deployment_of_user(status={}))
    server.fault = lambda request: Fault(500, "webhook failed") if "/services/" in request.path else None

    async def scenario(process: Process) -> None:
        await asyncio.sleep(90)
        assert "webhook failed" in condition_of(server, "Ready")["message"]
        mark = "2026-03-01T12:01:30Z"
        server.change(DIFFUSION_DEPLOYMENT, "wan", lambda raw: raw["metadata"].update(deletionTimestamp=mark))
        before = len(server.writes)
        await asyncio.sleep(600)
        assert len(server.writes) == before, "nothing is created or written after the deletion mark"
        server.delete(DIFFUSION_DEPLOYMENT, "wan")
        await asyncio.sleep(600)
        assert len(server.writes) == before

    play(server, scenario)


def test_k14_a_watch_that_delivers_nothing_is_repaired_by_the_next_list() -> None:
    server = server_with_a_validated_pod()

    async def scenario(process: Process) -> None:
        await settle(server)
        process.hears = False
        server.change(RESIDENCY_PLACEMENT, POD_NAME, lambda raw: raw["status"]["conditions"][-1].update(status="False"))
        await asyncio.sleep(RESYNC + 1)
        assert gate_of(server) == "False"
        assert process.freshness.complaint(3 * RESYNC) == ""

    play(server, scenario)


def test_k14_when_lists_fail_too_liveness_says_so() -> None:
    server = server_with_a_validated_pod()

    async def scenario(process: Process) -> None:
        await settle(server)
        process.hears = False
        server.fault = lambda request: Fault(0) if request.method == "GET" else None
        await asyncio.sleep(2 * RESYNC)
        assert process.freshness.complaint(3 * RESYNC) == ""
        await asyncio.sleep(2 * RESYNC)
        assert "the API server does not answer" in process.freshness.complaint(3 * RESYNC)

    play(server, scenario)


def test_k15_a_parent_that_is_gone_in_mid_reconcile_is_dropped_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    server = server_with_a_validated_pod()
    caplog.set_level(logging.INFO)

    async def scenario(process: Process) -> None:
        def vanish(request: Request) -> Fault | None:
            path = DIFFUSION_DEPLOYMENT.path("studio", "wan")
            if request.writes and request.path.startswith(path) and path in server.objects:
                process.hears = False  # Not even the deletion is heard.
                server.delete(DIFFUSION_DEPLOYMENT, "wan")
            return None

        server.fault = vanish
        await asyncio.sleep(60)
        answers = [request for request in server.writes if "/diffusiondeployments/" in request.path]
        assert len(answers) <= 2, "no retry"
        assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) <= 1

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
