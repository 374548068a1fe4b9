"""Two operators at once do no harm: every write is absolute, guarded and not repeated, so a second writer adds nothing.

This is why there is no Lease: an election keeps two writers apart most of the time, and what must hold for the rest of
it is exactly this.
"""

from __future__ import annotations

import asyncio
import random

import pytest
from fake_server import FakeServer, Request
from observations import deployment_of_user, placement, pod
from process import RESYNC, Process, condition_of, controller
from test_faulty_server import POD_NAME, gate_of
from virtual_time import run

from stowplan_operator.kinds import DIFFUSION_DEPLOYMENT, RESIDENCY_PLACEMENT


def flip(server: FakeServer, status: str) -> None:
    server.change(RESIDENCY_PLACEMENT, POD_NAME, lambda raw: raw["status"]["conditions"][-1].update(status=status))


def _event(request: Request) -> bool:
    return request.path.endswith("/events")


@pytest.mark.parametrize("lags", [(0.0, 0.0), (0.0, 3.0), (2.0, 30.0)])
def test_their_end_is_that_of_one_and_then_both_are_silent(lags: tuple[float, float]) -> None:
    dd = deployment_of_user(status={})
    server = FakeServer(dd, pod(dd, gate=None), placement())

    async def scenario() -> None:
        operators = [Process(server, lag=lag) for lag in lags]
        for operator in operators:
            operator.start()
        for status in ("True", "False", "True"):
            flip(server, status)
            await asyncio.sleep(90)
            controller(server)
            await asyncio.sleep(90)
            assert gate_of(server) == status
            assert condition_of(server, "Ready")["status"] == status
        before = len(server.writes)
        await asyncio.sleep(10 * RESYNC)
        assert len(server.writes) == before
        posted = [
            str(request.body and request.body["metadata"]["name"]) for request in server.writes if _event(request)
        ]
        assert all(posted.count(name) <= 2 for name in posted), "each of them posts an Event once, under one name"
        for operator in operators:
            assert operator.alive()
            await operator.stop()

    run(scenario())


@pytest.mark.parametrize("seed", range(6))
def test_one_dies_at_any_moment_and_the_other_finishes(seed: int) -> None:
    dice = random.Random(seed)
    dd = deployment_of_user(status={})
    server = FakeServer(dd, pod(dd, gate=None), placement())

    async def scenario() -> None:
        first, second = Process(server), Process(server, lag=dice.uniform(0, 5))
        first.start()
        second.start()
        await asyncio.sleep(dice.uniform(0, 0.3))
        await first.stop()
        await asyncio.sleep(60)
        controller(server)
        await asyncio.sleep(60)
        assert gate_of(server) == "True"
        assert condition_of(server, "Ready")["status"] == "True"
        assert server.get(DIFFUSION_DEPLOYMENT, "wan")["status"]["validatedReplicas"] == 1
        await second.stop()

    run(scenario())
