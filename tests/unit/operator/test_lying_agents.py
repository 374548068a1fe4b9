"""An agent that lies about times and boots harms its own pod: not the other pods, nor what is told later."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from decisions import decided, running, written
from fake_server import FakeServer
from observations import ago, deployment_of_user, placement, pod, proven_start
from process import Process
from test_rollbacks import ROLLBACK, back
from test_starts_kept import Fleet
from test_stored_starts import CARD_A, WITH_IP, start_of
from virtual_time import run

from stowplan_operator.allowance import Allowance
from stowplan_operator.kinds import DIFFUSION_DEPLOYMENT, RESIDENCY_PLACEMENT, Json
from stowplan_operator.pod import parse_time
from stowplan_operator.starts import PAUSE, checked

BURST, EVERY = 40, timedelta(seconds=30)
"""Events of one pod."""
OUT_OF_UTC = ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"]
FAR_AHEAD = "9999-12-31T23:59:59Z"


@pytest.mark.parametrize("time", OUT_OF_UTC)
def test_a_time_that_utc_has_no_year_for_is_none(time: str) -> None:
    assert parse_time(time) is None


def lying(started: str) -> Json:
    raw = placement("wan-7d4-bad", pod_uid="uid-bad")
    raw["status"]["agent"]["startedAt"] = started
    for found in raw["status"]["conditions"]:
        found["lastTransitionTime"] = started
    return raw


@pytest.mark.parametrize("time", OUT_OF_UTC)
def test_a_time_that_cannot_be_hinders_no_other_gate(time: str) -> None:
    dd = deployment_of_user(replicas=2)
    pods = [pod(dd, gate="False"), pod(dd, "wan-7d4-bad", uid="uid-bad", gate="True")]
    decision = decided(*running(dd, *pods), placement(), lying(time))
    gates = {write.patch.pod.name: write.patch.gate for write in decision.gates}
    assert gates["wan-7d4-abc"].open
    assert not gates["wan-7d4-bad"].open


def test_a_rollback_of_the_future_silences_none_of_later_pods() -> None:
    dd = deployment_of_user()
    lie = back("wan-7d4-abc", "pod-uid", 20)
    lie["status"]["rollbacks"] = [ROLLBACK | {"time": FAR_AHEAD}]
    objects = [*running(dd, pod(dd)), lie]
    without = written(objects, decided(*objects))[:-2]
    without = written(without, decided(*without))
    later = decided(*without, pod(dd, "wan-7d4-new", uid="new"), back("wan-7d4-new", "new", 5))
    assert [event["reason"] for event in later.events if event["type"] == "Warning"] == ["PlacementRolledBack"]
    assert later.status is not None
    assert later.status["status"]["rollbacks"] == 2
    assert later.status["status"]["lastRollback"]["pod"] == "wan-7d4-new"


def test_a_start_of_the_future_is_not_kept_and_keeps_none_of_now_from_being_kept() -> None:
    dd = deployment_of_user(replicas=2)
    pods = [pod(dd, **WITH_IP), pod(dd, "wan-7d4-xyz", uid="uid-2", **WITH_IP)]
    liar = proven_start("wan-7d4-xyz", pod_uid="uid-2")
    for found in liar["status"]["conditions"]:
        found["lastTransitionTime"] = FAR_AHEAD
    fetch = decided(*running(dd, *pods), proven_start(), liar).fetch
    assert fetch is not None
    assert [start.pod for start in fetch.starts] == ["wan-7d4-abc"]


def test_an_agent_that_claims_a_new_boot_all_the_time_is_asked_now_and_then() -> None:
    dd = deployment_of_user(status={})
    server = FakeServer(dd, pod(dd, gate=None, **WITH_IP), proven_start())
    fleet = Fleet(**{"wan-7d4-abc": start_of(CARD_A)})

    def another_boot(number: int) -> Any:
        def change(raw: Json) -> None:
            raw["status"]["agent"]["bootId"] = f"boot-{number}"
            for found in raw["status"]["conditions"]:
                found["lastTransitionTime"] = ago(-number)

        return change

    async def scenario() -> None:
        process = Process(server, fetch=fleet.fetch)
        process.start()
        for number in range(100):
            server.change(RESIDENCY_PLACEMENT, "wan-7d4-abc", another_boot(number))
            await asyncio.sleep(1)
        assert len(fleet.asked) <= 1 + 100 / PAUSE
        await process.stop()

    run(scenario())


def test_an_agent_that_flaps_has_so_many_events_and_no_more() -> None:
    dd = deployment_of_user(status={})
    server = FakeServer(dd, pod(dd, gate=None), placement())

    def claim(number: int) -> Any:
        def change(raw: Json) -> None:
            raw["status"]["agent"]["bootId"] = f"boot-{number}"
            raw["status"]["rollbacks"] = [ROLLBACK | {"time": ago(3600 - 10 * number - k)} for k in range(10)]
            raw["status"]["conditions"][-1]["status"] = "True" if number % 2 else "False"

        return change

    async def scenario() -> None:
        process = Process(server)
        process.start()
        for number in range(200):
            server.change(RESIDENCY_PLACEMENT, "wan-7d4-abc", claim(number))
            await asyncio.sleep(1)
        await process.stop()
        told = [request for request in server.writes if request.path.endswith("/events") and request.body]
        of_the_pod = [request for request in told if request.body and "related" in request.body]
        assert BURST / 2 < len(of_the_pod) <= BURST + timedelta(seconds=201) / EVERY
        assert server.get(DIFFUSION_DEPLOYMENT, "wan")["status"]["rollbacks"] > 1_000, "each is counted all the same"

    run(scenario())


@pytest.mark.parametrize("pods", [1, 100])
def test_the_events_of_pods_that_start_roll_back_and_restart_are_all_told(pods: int) -> None:
    allowance, now = Allowance(BURST, EVERY), datetime(2026, 3, 1, tzinfo=UTC)
    for number in range(BURST * pods):
        assert allowance.wait(f"pod-{number % pods}", now) == 0
        allowance.take(f"pod-{number % pods}", now)
    assert allowance.wait("pod-0", now) == EVERY.total_seconds()
    assert allowance.wait("pod-0", now + EVERY) == 0
    allowance.take("pod-0", now + EVERY)
    assert allowance.wait("pod-0", now + EVERY) == EVERY.total_seconds()


def test_a_start_that_is_nested_too_deep_to_read_is_refused() -> None:
    with pytest.raises(ValueError, match="no stored start"):
        checked(b"[" * 100_000)
