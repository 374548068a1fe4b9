"""Rollbacks: the gate opens on the last good placement, and each is told everywhere once."""

from __future__ import annotations

import pytest
from decisions import conditions, decided, running, written
from observations import ago, condition, deployment_of_user, measured, placement, pod

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


@pytest.mark.parametrize("rolled_back", [False, True])
def test_a_prediction_is_told_of_the_plan_and_not_of_what_took_its_place(rolled_back: bool) -> None:
    dd = deployment_of_user()
    told = (condition("RolledBack", "True", "TooSlow"),) if rolled_back else ()
    found = placement(conditions=told, **measured() | {"plan": PLAN})
    decision = decided(*running(dd, pod(dd, gate="False")), found)
    (proven,) = [event["note"] for event in decision.gates[0].events if event["reason"] == "PlacementValidated"]
    assert "61000 ms a request" in proven
    assert ("predicted" in proven) is not rolled_back


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
