"""K13, K14, K15: deployments that go in the middle of things, and watches that say nothing."""

from __future__ import annotations

import asyncio
import logging

import pytest
from fake_server import FakeServer, Fault, Request
from observations import deployment_of_user
from process import RESYNC, Process, condition_of
from test_faulty_server import POD_NAME, gate_of, play, server_with_a_validated_pod, settle

from stowplan_operator import worker
from stowplan_operator.kinds import DIFFUSION_DEPLOYMENT, RESIDENCY_PLACEMENT


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


def test_a_decision_that_cannot_be_made_leaves_no_gate_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the rest of a deployment made us stumble over, pods are judged."""
    server = server_with_a_validated_pod()

    def stumbles(*_: object, **__: object) -> object:
        raise ZeroDivisionError

    async def scenario(process: Process) -> None:
        await settle(server)
        assert gate_of(server) == "True"
        monkeypatch.setattr(worker, "decide", stumbles)
        server.change(RESIDENCY_PLACEMENT, POD_NAME, lambda raw: raw["status"]["conditions"][-1].update(status="False"))
        await asyncio.sleep(5)
        assert gate_of(server) == "False"
        before = len(server.writes)
        await asyncio.sleep(600)
        assert len(server.writes) == before, "a gate that is closed is not written again"

    play(server, scenario)
