"""Generated observations: whatever a cluster may show of one deployment, sensible or not."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from observations import condition, deployment_of_user, existing_children, placement, pod

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
