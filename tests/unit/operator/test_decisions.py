"""From what was observed to what is written: one deployment's life, as tables."""

from __future__ import annotations

import copy

import pytest
from decisions import conditions, decided, running, written
from observations import (
    GIB,
    KEY,
    ago,
    condition,
    deployment_of_user,
    existing_children,
    measured,
    placement,
    pod,
    template,
)

from stowplan_operator.kinds import Json


def test_first_sight_creates_every_child_and_says_unknown() -> None:
    decision = decided(deployment_of_user(status={}))
    kinds = [write.manifest["kind"] for write in decision.children]
    assert kinds == ["ServiceAccount", "RoleBinding", "Service", "PodDisruptionBudget", "Deployment"]
    assert conditions(decision) == {"Ready": ("Unknown", "Reconciling", "seen for the first time")}
    assert [write.events[0]["reason"] for write in decision.children] == ["Created"] * 5


def test_a_pod_gets_a_placement_and_a_closed_gate() -> None:
    dd = deployment_of_user(generation=3)
    decision = decided(*running(dd, pod(dd, ready=False, gate=None)))
    assert [write.patch.gate.open for write in decision.gates] == [False]
    (created,) = decision.placements
    assert created["metadata"]["name"] == "wan-7d4-abc"
    assert created["metadata"]["ownerReferences"][0]["uid"] == "pod-uid"
    assert created["spec"] == {
        "deployment": "wan",
        "pod": {"name": "wan-7d4-abc", "uid": "pod-uid"},
        "generation": 3,
        "limits": {"memoryBytes": 96 * GIB},
    }


def test_ready_when_all_is_rolled_out_and_validated_then_nothing_is_written() -> None:
    dd = deployment_of_user()
    objects = running(dd, pod(dd), placement(**measured()))
    decision = decided(*objects)
    assert conditions(decision)["Ready"] == ("True", "RolledOut", "1 of 1 pods validated")
    assert decision.status is not None
    shown = decision.status["status"]
    assert shown["placement"] == [
        "transformer: Layerwise, 30/40 layers resident, 21 GiB on the device, 7 GiB pinned, Permanent"
    ]
    assert (shown["device"], shown["peakBytes"], shown["requestMilliseconds"]) == ("NVIDIA H200", 100 * GIB, 61_000)
    assert shown["selector"] == "stowplan.dev/deployment=wan"
    assert [event["reason"] for event in decision.events] == ["Ready"]
    assert not decided(*written(objects, decision))


K2_CRASHING = {
    "restartCount": 4,
    "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s restarting failed container"}},
    "lastState": {"terminated": {"reason": "Error", "exitCode": 1, "message": "model id wan-typo does not exist\n"}},
}
K1_OOM = {
    "restartCount": 1,
    "state": {"waiting": {"reason": "CrashLoopBackOff"}},
    "lastState": {"terminated": {"reason": "OOMKilled", "exitCode": 137}},
}


def ended(restarts: int) -> Json:
    """A container whose process was killed, before the kubelet starts it again."""
    return {"restartCount": restarts, "state": {"terminated": {"reason": "Error", "exitCode": 137}}}


PULL = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "x"'}}}


@pytest.mark.parametrize(
    ("server", "message"),
    [
        (
            K2_CRASHING,
            "container server: CrashLoopBackOff, last exit Error (code 1): model id wan-typo does not exist",
        ),
        (K1_OOM, "container server: CrashLoopBackOff, last exit OOMKilled (code 137); raise spec.resources.memory"),
        (ended(0), "container server: ended, last exit Error (code 137)"),
        (ended(1), "container server: restarted once, last exit Error (code 137)"),
        (ended(2), "container server: restarted 2 times, last exit Error (code 137)"),
        (PULL, 'container server: ImagePullBackOff: Back-off pulling image "x"'),
    ],
    ids=["K2", "K1", "ended", "restarted once", "restarted twice", "image"],
)
def test_a_pod_that_cannot_run_is_never_ready_and_says_why(server: Json, message: str) -> None:
    dd = deployment_of_user()
    decision = decided(*running(dd, pod(dd, server=server, ready=True)), placement())
    assert conditions(decision)["Ready"] == ("False", "PodFailed", f"pod wan-7d4-abc: {message}")
    assert conditions(decision)["Degraded"][:2] == ("True", "PodFailed")
    assert [write.patch.gate.open for write in decision.gates] == [False]


def test_k3_a_new_generation_is_not_ready_while_the_old_pods_still_are() -> None:
    old, new = deployment_of_user(), deployment_of_user(generation=2, serving={"env": [{"name": "A", "value": "1"}]})
    objects = [new, *existing_children(old), pod(old), placement()]
    decision = decided(*objects)
    assert conditions(decision)["Ready"] == ("False", "WaitingForPods", "no pod yet; 0 of 1 pods validated")
    assert conditions(decision)["Available"][0] == "True"
    assert [write.manifest["kind"] for write in decision.children] == ["Deployment"]
    assert decision.children[0].events[0]["reason"] == "RollingOut"


def test_k4_a_quota_error_reaches_the_message() -> None:
    dd = deployment_of_user()
    failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota: gpus"}
    objects = [dd, *existing_children(dd, pods=0, deployment_status={"conditions": [failure]})]
    assert conditions(decided(*objects))["Ready"] == ("False", "CreateFailed", "exceeded quota: gpus")


def test_a_refused_child_reaches_the_message() -> None:
    dd = deployment_of_user()
    decision = decided(dd, refusals=("Service wan was refused: exceeded quota",))
    assert conditions(decision)["Ready"] == ("False", "CreateFailed", "Service wan was refused: exceeded quota")


def test_k13_nothing_is_created_or_written_after_the_deletion_mark() -> None:
    dd = deployment_of_user(status={})
    dd["metadata"]["deletionTimestamp"] = ago(1)
    assert not decided(dd, pod(dd, gate=None))


def test_k15_a_deployment_that_is_gone_needs_nothing() -> None:
    dd = deployment_of_user()
    assert not decided(*running(dd, pod(dd, gate=None))[1:])


def test_k18_crash_looping_pods_of_an_old_template_do_not_hold_the_rollout() -> None:
    old, new = deployment_of_user(), deployment_of_user(generation=2, serving={"env": [{"name": "A", "value": "1"}]})
    decision = decided(new, *existing_children(old), pod(old, server=K2_CRASHING, ready=False))
    assert [write.manifest["kind"] for write in decision.children] == ["Deployment"]


def test_k20_a_restarted_container_closes_the_gate_at_once() -> None:
    dd = deployment_of_user()
    restarted = pod(dd, started=5, server={"restartCount": 1})
    decision = decided(*running(dd, restarted), placement(started=290))
    (gate,) = decision.gates
    assert not gate.patch.gate.open
    assert [event["reason"] for event in gate.events] == ["GateClosed"]
    assert conditions(decision)["Ready"][0] == "False"


def test_k22_a_blink_of_ready_touches_no_gate() -> None:
    dd = deployment_of_user()
    objects = running(dd, pod(dd), placement())
    settled = written(objects, decided(*objects))
    blinked = copy.deepcopy(settled)
    next(raw for raw in blinked if raw["kind"] == "Pod")["status"]["conditions"][0]["status"] = "False"
    decision = decided(*blinked)
    assert decision.gates == ()
    assert decision.placements == ()


def test_k23_a_pod_the_kubelet_refused_is_shown_and_is_no_rollback() -> None:
    dd = deployment_of_user()
    refused = pod(dd, phase="Failed", reason="UnexpectedAdmissionError", message="no GPU is free", containerStatuses=[])
    decision = decided(dd, *existing_children(dd, pods=0), refused)
    assert conditions(decision)["Ready"][2] == "pod wan-7d4-abc failed: UnexpectedAdmissionError: no GPU is free"
    assert conditions(decision)["Degraded"][1] == "PodFailed"
    assert decision.placements == ()


def test_k26_a_pod_under_a_used_name_waits_for_its_own_placement() -> None:
    dd = deployment_of_user()
    decision = decided(*running(dd, pod(dd, uid="new-uid")), placement(pod_uid="old-uid"))
    assert decision.placements == ()
    (gate,) = decision.gates
    assert not gate.patch.gate.open
    assert gate.patch.body["metadata"] == {"uid": "new-uid"}


SHORT = "interval 3 (transformer) is 1,234 bytes short of 40 MiB; 3 fewer frames would fit"


def test_an_infeasible_plan_stalls_with_the_agents_own_sentence() -> None:
    dd = deployment_of_user()
    failed = placement(
        validated="False", phase="Failed", conditions=(condition("Applied", "False", "Infeasible", SHORT),)
    )
    decision = decided(*running(dd, pod(dd, ready=False)), failed)
    for type_ in ("Ready", "Stalled", "Degraded", "Progressing"):
        assert conditions(decision)[type_][1:] == ("PlacementInfeasible", f"{SHORT} (pod wan-7d4-abc)")
    assert conditions(decision)["Stalled"][0] == "True"
    assert "Reconciling" not in conditions(decision)
    assert [(event["type"], event["reason"]) for event in decision.events] == [("Warning", "PlacementInfeasible")]


def test_a_phase_past_its_deadline_is_told_while_it_hangs() -> None:
    dd = deployment_of_user()
    hangs = placement(
        validated=None, phase="Load", conditions=(condition("Validated", "False", "DeadlineExceeded", "x"),)
    )
    found = conditions(decided(*running(dd, pod(dd, ready=False, gate="False")), hangs))
    assert found["Ready"] == ("False", "PlacementFailed", "x (pod wan-7d4-abc)")
    assert found["Degraded"][:2] == ("True", "PlacementFailed")
    assert "Stalled" not in found


def test_one_failed_pod_of_two_is_told_but_not_stalled() -> None:
    dd = deployment_of_user(replicas=2)
    failed = placement(
        validated="False", phase="Failed", conditions=(condition("Calibrated", "False", "ModelInvalid", "bad file"),)
    )
    other = pod(dd, "wan-7d4-xyz", uid="other")
    objects = [*running(dd, pod(dd, ready=False), other), failed, placement("wan-7d4-xyz", pod_uid="other")]
    found = conditions(decided(*objects))
    assert found["Ready"] == ("False", "PlacementFailed", "bad file (pod wan-7d4-abc)")
    assert found["Available"] == ("True", "PodAvailable", "1 validated pod serves")
    assert "Stalled" not in found


def test_paused_changes_no_child_but_keeps_up_the_gate() -> None:
    old = deployment_of_user()
    new = deployment_of_user(generation=2, paused=True, serving={"env": [{"name": "A", "value": "1"}]})
    decision = decided(new, *existing_children(old), pod(old, gate="False"), placement())
    assert decision.children == ()
    assert decision.gates[0].patch.gate.open
    assert conditions(decision)["Ready"][:2] == ("False", "Paused")


def test_a_bad_spec_changes_no_pod_and_closes_no_gate() -> None:
    good = deployment_of_user()
    bad = deployment_of_user(generation=2, podTemplate={"spec": {"containers": [{"image": "x"}]}})
    decision = decided(bad, *existing_children(good), pod(good, gate="False"), placement())
    assert decision.children == ()
    assert decision.gates[0].patch.gate.open
    text = "spec.podTemplate.spec.containers[0] has no 'name'; spec.podTemplate.spec.containers is merged by it"
    assert conditions(decision)["Stalled"] == ("True", "SpecInvalid", text)
    assert conditions(decision)["Available"][0] == "True"


def test_scaled_to_zero_is_ready_and_not_available() -> None:
    dd = deployment_of_user(replicas=0)
    found = conditions(decided(dd, *existing_children(dd, pods=0)))
    assert found["Ready"][:2] == ("True", "ScaledToZero")
    assert found["Available"][0] == "False"


def test_a_pod_that_only_carries_the_label_is_not_ours() -> None:
    dd = deployment_of_user()
    stray = pod(dd, gate=None)
    stray["metadata"]["ownerReferences"] = []
    decision = decided(dd, *existing_children(dd, pods=0), stray)
    assert decision.gates == ()
    assert decision.placements == ()


def test_scaling_rolls_no_pod() -> None:
    assert template(deployment_of_user(replicas=1)) == template(deployment_of_user(replicas=5, paused=True))


def test_a_late_pod_of_the_old_template_gets_the_old_generation() -> None:
    old = deployment_of_user(generation=4)
    new = deployment_of_user(generation=5, serving={"env": [{"name": "A", "value": "1"}]})
    decision = decided(new, *existing_children(old), pod(old))
    assert decision.placements[0]["spec"]["generation"] == 4


def test_an_event_has_the_same_name_in_every_process_and_fits() -> None:
    dd = deployment_of_user()
    long = condition("Applied", "False", "Infeasible", "x" * 10_240)
    objects = [*running(dd, pod(dd, ready=False)), placement(validated="False", phase="Failed", conditions=(long,))]
    first, second = decided(*objects), decided(*objects)
    assert [event["metadata"]["name"] for event in first.events] == [
        event["metadata"]["name"] for event in second.events
    ]
    assert all(len(event["note"].encode()) <= 1024 for event in first.events)
    assert first.events[0]["metadata"]["namespace"] == KEY.namespace
    assert not decided(*written(objects, first)).events
