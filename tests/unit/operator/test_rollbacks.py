"""Rollbacks: the gate opens on the last good placement, and each is told everywhere once."""

from __future__ import annotations

from typing import Any

import pytest
from decisions import conditions, decided, running, written
from observations import ago, condition, deployment_of_user, measured, placement, pod

from stowplan_operator.kinds import Json

PLAN = {"id": "plan-2", "predictedMilliseconds": 50_000, "predictedPeakBytes": 1}
ROLLBACK = {
    "time": ago(20),
    "reason": "TooSlow",
    "message": "61 s against 50 s",
    "from": "plan-2",
    "to": "seed",
    "measured": "61 s",
}


def test_a_rollback_opens_the_gate_and_is_told_everywhere_once() -> None:
    dd = deployment_of_user()
    back = placement(conditions=(condition("RolledBack", "True", "TooSlow"),), phase="RolledBack", rollbacks=[ROLLBACK])
    objects = [*running(dd, pod(dd, gate="False")), back]
    decision = decided(*objects)
    assert decision.gates[0].patch.gate.open
    found = conditions(decision)
    assert found["Ready"][0] == "True"
    assert found["Degraded"][:2] == ("True", "PlacementRolledBack")
    assert "TooSlow: 61 s against 50 s" in found["Degraded"][2]
    assert decision.status is not None
    last = {"time": ago(20), "reason": "TooSlow", "pod": "wan-7d4-abc", "from": "plan-2", "to": "seed"}
    assert decision.status["status"]["lastRollback"] == last
    assert decision.status["status"]["rollbacks"] == 1
    assert ("Warning", "PlacementRolledBack") in [(event["type"], event["reason"]) for event in decision.events]
    assert not decided(*written(objects, decision))


@pytest.mark.parametrize(("rolled_back", "kept"), [(False, False), (True, False), (True, True), (False, True)])
def test_a_prediction_is_told_of_the_plan_and_not_of_what_took_its_place(rolled_back: bool, kept: bool) -> None:
    dd = deployment_of_user()
    told = (condition("RolledBack", "True", "TooSlow"),) if rolled_back else ()
    plan = PLAN | {"kept": "the seed placement is kept: it is as fast"} if kept else PLAN
    found = placement(conditions=told, **measured() | {"plan": plan})
    decision = decided(*running(dd, pod(dd, gate="False")), found)
    (proven,) = [event["note"] for event in decision.gates[0].events if event["reason"] == "PlacementValidated"]
    assert "61000 ms a request" in proven
    assert ("predicted" in proven) is not (rolled_back or kept)


def test_the_last_rollback_outlives_its_pod() -> None:
    last = {"time": ago(20), "reason": "TooSlow", "pod": "wan-7d4-old", "from": "plan-2", "to": "seed"}
    dd = deployment_of_user(status={"lastRollback": last, "conditions": [condition("Ready", "True", "RolledOut")]})
    decision = decided(*running(dd, pod(dd)), placement())
    assert decision.status is not None
    assert decision.status["status"]["lastRollback"] == last
    assert not decision.events


def test_two_pods_that_roll_back_in_one_second_are_both_told() -> None:
    """Times have whole seconds, and the second pod may be seen a reconcile later."""
    dd = deployment_of_user(replicas=2)
    pods = [pod(dd, "wan-7d4-abc"), pod(dd, "wan-7d4-xyz", uid="uid-2")]
    told = condition("RolledBack", "True", "TooSlow")
    first = placement(conditions=(told,), phase="RolledBack", rollbacks=[ROLLBACK])
    second = placement("wan-7d4-xyz", pod_uid="uid-2")
    objects = [*running(dd, *pods), first, second]
    after = written(objects, decided(*objects))
    after[-1] = placement("wan-7d4-xyz", pod_uid="uid-2", conditions=(told,), phase="RolledBack", rollbacks=[ROLLBACK])
    decision = decided(*after)
    warned = [event["note"] for event in decision.events if event["reason"] == "PlacementRolledBack"]
    assert len(warned) == 1 and "wan-7d4-xyz" in warned[0]
    assert not decided(*written(after, decision))


def back(name: str, uid: str, *times: float) -> Json:
    told = condition("RolledBack", "True", "TooSlow")
    found = [ROLLBACK | {"time": ago(seconds)} for seconds in times]
    return placement(name, pod_uid=uid, conditions=(told,), phase="RolledBack", rollbacks=found)


@pytest.mark.parametrize("first", [0, 1])
def test_in_whatever_order_two_pods_are_seen_both_are_told_and_counted(first: int) -> None:
    """Times have whole seconds, nodes have clocks of their own, and the name says nothing of the order."""
    dd = deployment_of_user(replicas=2)
    names = [("wan-7d4-abc", "pod-uid"), ("wan-7d4-xyz", "uid-2")]
    pods = [pod(dd, name, uid=uid) for name, uid in names]
    early, late = names[first], names[1 - first]
    objects = [*running(dd, *pods), back(*early, 20), placement(late[0], pod_uid=late[1])]
    after = written(objects, decided(*objects))
    after[-1] = back(*late, 25)
    decision = decided(*after)
    warned = [event["note"] for event in decision.events if event["reason"] == "PlacementRolledBack"]
    assert len(warned) == 1 and late[0] in warned[0]
    assert decision.status is not None
    assert decision.status["status"]["rollbacks"] == 2
    assert decision.status["status"]["lastRollback"]["pod"] == early[0], "the newer one, though it was seen first"
    assert not decided(*written(after, decision))


def test_the_count_never_falls_and_a_new_pod_adds_to_it() -> None:
    dd = deployment_of_user()
    objects = [*running(dd, pod(dd)), back("wan-7d4-abc", "pod-uid", 40, 20)]
    after = written(objects, decided(*objects))
    assert after[0]["status"]["rollbacks"] == 2
    without = after[:-2]
    without = written(without, decided(*without))
    assert (without[0]["status"]["rollbacks"], without[0]["status"]["countedRollbacks"]) == (2, [])
    again = [*without, pod(dd, "wan-7d4-new", uid="new"), back("wan-7d4-new", "new", 5)]
    assert written(again, decided(*again))[0]["status"]["rollbacks"] == 3


def test_what_an_operator_without_marks_has_told_is_not_told_again() -> None:
    last = {"time": ago(20), "reason": "TooSlow", "pod": "wan-7d4-abc", "from": "plan-2", "to": "seed"}
    status = {"rollbacks": 1, "lastRollback": last, "conditions": [condition("Ready", "True", "RolledOut")]}
    dd = deployment_of_user(status=status)
    decision = decided(*running(dd, pod(dd)), back("wan-7d4-abc", "pod-uid", 20))
    assert decision.status is not None
    assert decision.status["status"]["rollbacks"] == 1
    assert not [event for event in decision.events if event["reason"] == "PlacementRolledBack"]


def ended_by_rollback(restarts: int, **state: Any) -> Json:
    return {"restartCount": restarts, "lastState": {"terminated": {"reason": "Error", "exitCode": 70}}, "state": state}


FAILED_ROLLBACK = [
    ({"state": {"terminated": {"reason": "Error", "exitCode": 70}}}, {"phase": "Failed", "validated": "False"}),
    (ended_by_rollback(1, running={"startedAt": ago(30)}), {"phase": "Failed", "validated": "False"}),
    (ended_by_rollback(1, running={"startedAt": ago(30)}), {"phase": "Load", "validated": "False", "started": 29}),
    (ended_by_rollback(1, running={"startedAt": ago(30)}), {"phase": "Failed", "validated": "False", "started": 29}),
    (ended_by_rollback(1, waiting={"reason": "CrashLoopBackOff"}), {"phase": "Failed", "validated": "False"}),
]


def test_a_deployment_does_not_flap_after_a_rollback_that_failed() -> None:
    """The process ends, the container starts anew, measures, may fail again: one answer through all of it."""
    dd = deployment_of_user()
    seen = set()
    for server, report in FAILED_ROLLBACK:
        decision = decided(*running(dd, pod(dd, ready=False, gate="False", server=server)), placement(**report))
        found = conditions(decision)
        seen.add(tuple(sorted(found.items())))
        assert found["Ready"][:2] == ("False", "PlacementFailed")
        assert "rolling back a placement failed" in found["Ready"][2]
    assert len(seen) == 1
