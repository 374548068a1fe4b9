"""K19: whatever is observed, the conditions of one status agree with each other and with its numbers."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from observations import NOW, SETTINGS, condition, deployment_of_user, existing_children, placement, pod, snapshot

from stowplan_operator.decide import decide
from stowplan_operator.kinds import Json

STATES = st.sampled_from(
    [
        {},
        {"waiting": {"reason": "CrashLoopBackOff"}},
        {"waiting": {"reason": "ContainerCreating"}},
        {"waiting": {"reason": "ErrImagePull", "message": "no such image"}},
        {"running": {"startedAt": "2026-03-01T11:55:00Z"}},
        {"running": {"startedAt": "2026-03-01T11:59:30Z"}},
        {"terminated": {"reason": "OOMKilled", "exitCode": 137}},
    ]
)
PODS = st.fixed_dictionaries(
    {
        "state": STATES,
        "ready": st.booleans(),
        "gate": st.sampled_from([None, "True", "False"]),
        "phase": st.sampled_from(["Pending", "Running", "Failed"]),
        "current": st.booleans(),
    }
)
PLACEMENTS = st.none() | st.fixed_dictionaries(
    {
        "validated": st.sampled_from([None, "True", "False", "Unknown"]),
        "phase": st.sampled_from(["Pending", "Probe", "Ready", "RolledBack", "Failed"]),
        "validated_for": st.sampled_from([1, 2]),
        "conditions": st.sampled_from(
            [
                (),
                (condition("Applied", "False", "Infeasible", "1 byte short"),),
                (condition("RolledBack", "True", "TooSlow"),),
            ]
        ),
    }
)


@st.composite
def observations(draw: st.DrawFn) -> list[Json]:
    dd = deployment_of_user(replicas=draw(st.integers(0, 3)), paused=draw(st.booleans()))
    controller = {
        "replicas": draw(st.integers(0, 3)),
        "updatedReplicas": draw(st.integers(0, 3)),
        "observedGeneration": draw(st.integers(0, 1)),
        "conditions": draw(
            st.sampled_from([[], [{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}]])
        ),
    }
    objects = [dd, *(existing_children(dd, deployment_status=controller) if draw(st.booleans()) else [])]
    for number, state in enumerate(draw(st.lists(PODS, max_size=3))):
        name, uid = f"wan-7d4-{number}", f"uid-{number}"
        other = {} if state["current"] else {"of_template": "older"}
        raw = pod(dd, name, uid=uid, ready=state["ready"], gate=state["gate"], phase=state["phase"], **other)
        raw["status"]["containerStatuses"][0]["state"] = state["state"]
        objects.append(raw)
        report: dict[str, Any] | None = draw(PLACEMENTS)
        if report is not None:
            objects.append(placement(name, pod_uid=uid, **report))
    return objects


@settings(max_examples=400, deadline=None)
@given(observations(), st.sampled_from([(), ("Service wan was refused: quota",)]))
def test_conditions_and_numbers_agree(objects: list[Json], refusals: tuple[str, ...]) -> None:
    decision = decide(snapshot(*objects), NOW, SETTINGS, refusals)
    assert decision.status is not None
    status: Json = decision.status["status"]
    found = {entry["type"]: entry for entry in status["conditions"]}
    true = {type_ for type_, entry in found.items() if entry["status"] == "True"}
    desired = objects[0]["spec"]["replicas"]

    if "Ready" in true:
        assert status["readyReplicas"] == status["validatedReplicas"] == status["updatedReplicas"] == desired
        assert status["replicas"] == desired
        assert true & {"Progressing", "Stalled", "Reconciling"} == set()
        assert ("Available" in true) == (desired > 0)
        for word in ("waiting", "no pod yet", "phase", "crash"):
            assert word not in found["Ready"]["message"].lower()
    assert not {"Stalled", "Reconciling"} <= true
    assert all(found[type_]["status"] == "True" for type_ in ("Stalled", "Reconciling") if type_ in found)
    assert ("Available" in true) == (status["readyReplicas"] > 0)
    assert status["readyReplicas"] <= status["validatedReplicas"] <= status["replicas"]
    if "Stalled" in true:
        assert found["Stalled"]["reason"] == found["Ready"]["reason"] == found["Progressing"]["reason"]
        assert found["Stalled"]["message"] == found["Ready"]["message"]
    if "PlacementValidated" in true:
        assert status["validatedReplicas"] >= desired > 0
    assert all(entry["observedGeneration"] == 1 for entry in found.values())


@settings(max_examples=200, deadline=None)
@given(observations())
def test_deciding_again_on_what_was_written_writes_no_status(objects: list[Json]) -> None:
    decision = decide(snapshot(*objects), NOW, SETTINGS)
    assert decision.status is not None
    objects[0]["status"] = decision.status["status"]
    again = decide(snapshot(*objects), NOW, SETTINGS)
    assert again.status is None
    assert again.events == ()
