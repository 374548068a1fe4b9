"""Stored starts through the whole loop: fetched once, kept by card, void before new pods; agents are not trusted."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web
from fake_server import FakeServer, Fault
from observations import deployment_of_user, pod, proven_start
from process import RESYNC, Process, condition_of, controller
from test_faulty_server import gate_of
from test_stored_starts import CARD_A, CARD_B, WITH_IP, kept, start_of
from virtual_time import run

from stowplan_api.contract import ANNOTATION_RECALIBRATE, STORED_START_PATH
from stowplan_operator.decide.starts import ProvenStart
from stowplan_operator.kinds import CONFIG_MAP, DEPLOYMENT, DIFFUSION_DEPLOYMENT, RESIDENCY_PLACEMENT, Json
from stowplan_operator.starts import LARGEST, over_http


class Fleet:
    """Agents that answer with what they proved."""

    def __init__(self, **answers: bytes) -> None:
        self.answers = answers
        self.asked: list[str] = []

    async def fetch(self, start: ProvenStart) -> bytes:
        self.asked.append(start.pod)
        await asyncio.sleep(0.1)
        if start.pod not in self.answers:
            raise ValueError("the answer was 404")
        return self.answers[start.pod]


def a_server(dd: Json) -> FakeServer:
    return FakeServer(dd, pod(dd, gate=None, **WITH_IP), proven_start())


def files_of(server: FakeServer) -> list[str]:
    found = server.objects.get(CONFIG_MAP.path("studio", "wan-starts"))
    return sorted(found["data"]) if found else []


def test_what_a_pod_proved_is_kept_once_and_by_every_later_operator() -> None:
    server = a_server(deployment_of_user(status={}))
    fleet = Fleet(**{"wan-7d4-abc": start_of(CARD_A)})

    async def scenario() -> None:
        for _ in range(2):
            process = Process(server, fetch=fleet.fetch)
            process.start()
            await asyncio.sleep(30)
            controller(server)
            await asyncio.sleep(3 * RESYNC)
            await process.stop()
        assert files_of(server) == [f"{CARD_A}.json"]
        assert fleet.asked == ["wan-7d4-abc"]
        (owner,) = server.get(CONFIG_MAP, "wan-starts")["metadata"]["ownerReferences"]
        assert owner["uid"] == "dd-uid"

    run(scenario())


def test_another_card_is_kept_beside_it() -> None:
    dd = deployment_of_user(status={}, replicas=2)
    server = a_server(dd)
    fleet = Fleet(**{"wan-7d4-abc": start_of(CARD_A), "wan-7d4-xyz": start_of(CARD_B)})

    async def scenario() -> None:
        process = Process(server, fetch=fleet.fetch)
        process.start()
        await asyncio.sleep(30)
        server.put(pod(dd, "wan-7d4-xyz", uid="uid-2", gate=None, **WITH_IP))
        server.put(proven_start("wan-7d4-xyz", pod_uid="uid-2", age=5))
        await asyncio.sleep(30)
        assert files_of(server) == [f"{CARD_A}.json", f"{CARD_B}.json"]
        await process.stop()

    run(scenario())


def test_an_agent_that_has_nothing_is_asked_three_times_and_holds_up_nothing() -> None:
    server, fleet = a_server(deployment_of_user(status={})), Fleet()

    async def scenario() -> None:
        process = Process(server, fetch=fleet.fetch)
        process.start()
        await asyncio.sleep(30)
        controller(server)
        await asyncio.sleep(10 * RESYNC)
        assert len(fleet.asked) == 3
        assert files_of(server) == []
        assert gate_of(server) == "True"
        assert condition_of(server, "Ready")["status"] == "True"
        await process.stop()

    run(scenario())


def test_no_pod_is_made_anew_before_what_it_is_not_to_use_is_gone() -> None:
    server = a_server(deployment_of_user(status={}))
    fleet = Fleet(**{"wan-7d4-abc": start_of(CARD_A)})

    async def scenario() -> None:
        process = Process(server, fetch=fleet.fetch)
        process.start()
        await asyncio.sleep(30)
        controller(server)
        await asyncio.sleep(30)
        assert files_of(server)
        server.fault = lambda request: Fault(503) if request.writes and "/configmaps" in request.path else None
        server.change(DIFFUSION_DEPLOYMENT, "wan", _ask)
        await asyncio.sleep(30)
        annotations = server.get(DEPLOYMENT, "wan")["spec"]["template"]["metadata"].get("annotations", {})
        assert annotations == {}, "the old pods stay until the stored starts are void"
        server.fault = lambda request: None
        await asyncio.sleep(120)
        annotations = server.get(DEPLOYMENT, "wan")["spec"]["template"]["metadata"]["annotations"]
        assert annotations == {ANNOTATION_RECALIBRATE: "monday"}
        assert files_of(server) == []
        await process.stop()

    run(scenario())


def test_what_was_fetched_before_a_recalibration_is_not_kept_after_it() -> None:
    server = a_server(deployment_of_user(status={}))
    dd = server.get(DIFFUSION_DEPLOYMENT, "wan")
    server.put(kept(dd) | {"data": {}})

    async def scenario() -> None:
        async def slowly(start: ProvenStart) -> bytes:
            server.change(DIFFUSION_DEPLOYMENT, "wan", _ask)
            await asyncio.sleep(20)
            return start_of(CARD_A)

        process = Process(server, fetch=slowly)
        process.start()
        await asyncio.sleep(100)
        assert server.get(CONFIG_MAP, "wan-starts")["metadata"]["annotations"] == {ANNOTATION_RECALIBRATE: "monday"}
        assert files_of(server) == []
        assert server.get(RESIDENCY_PLACEMENT, "wan-7d4-abc")
        await process.stop()

    run(scenario())


def _ask(raw: Json) -> None:
    raw["metadata"]["annotations"] = {ANNOTATION_RECALIBRATE: "monday"}


KIND = web.AppKey("kind", str)


async def _answer(request: web.Request) -> web.StreamResponse:
    kind = request.app[KIND]
    if kind == "redirect":
        raise web.HTTPFound("/elsewhere")
    if kind == "missing":
        raise web.HTTPNotFound
    return web.Response(body=start_of(CARD_A, size=2 * LARGEST if kind == "long" else 10))


@pytest.mark.parametrize(("kind", "message"), [("redirect", "302"), ("missing", "404"), ("long", "longer than")])
def test_a_serving_container_cannot_lead_the_operator_elsewhere_nor_fill_it(kind: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        asyncio.run(_ask_over_http(kind))


def test_an_honest_answer_arrives_whole() -> None:
    assert asyncio.run(_ask_over_http("whole")) == start_of(CARD_A, size=10)


async def _ask_over_http(kind: str) -> bytes:
    app = web.Application()
    app[KIND] = kind
    app.router.add_get(STORED_START_PATH, _answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        return await over_http(ProvenStart("", "wan", "boot", "127.0.0.1", port))
    finally:
        await runner.cleanup()
