"""The gate on a real kubelet: closed until the agent of this boot has validated, whatever dies in between."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from cluster.played import Operator, Studio, deployment, now, until
from stowplan_api.contract import READINESS_GATE, Manager
from stowplan_operator.client import ApiError, connect
from stowplan_operator.kinds import POD
from stowplan_operator.program import Program
from stowplan_operator.settings import Settings


def test_k10_k25_the_gate_follows_the_placement_without_any_pod_event(studio: Studio, operator: Operator) -> None:
    studio.apply(deployment())
    pod = studio.running_pod()
    studio.agent_says(pod, "False", phase="Probe")
    studio.wait(f"pod/{pod}", f'.status.conditions[?(@.type=="{READINESS_GATE}")].reason', "NotValidated")
    studio.wait_condition(f"pod/{pod}", "ContainersReady", "True")
    assert studio.condition(f"pod/{pod}", "Ready")["status"] == "False"
    studio.wait("dd/tiny", '.status.conditions[?(@.type=="Ready")].reason', "Calibrating")

    studio.agent_says(pod, "True")
    studio.wait_gate(pod, "True")
    studio.kubectl("wait", "--for=condition=Ready", f"pod/{pod}", "dd/tiny", "--timeout=30s")
    kubelets = {entry["type"] for entry in studio.get("pod", pod)["status"]["conditions"]}
    assert kubelets >= {"Initialized", "PodScheduled", "ContainersReady", "Ready", READINESS_GATE}
    assert operator.counted("stowplan_operator_gate_latency_seconds_count") == 1


def test_k20_a_killed_container_closes_the_gate_until_its_new_boot_validates(
    studio: Studio, operator: Operator
) -> None:
    studio.apply(deployment())
    pod = studio.running_pod()
    studio.agent_says(pod, "True")
    studio.kubectl("wait", "--for=condition=Ready", "dd/tiny", "--timeout=60s")

    studio.kubectl("exec", pod, "--", "sh", "-c", "touch /tmp/stop")
    studio.wait_gate(pod, "False")
    studio.wait_condition("dd/tiny", "Ready", "False")
    studio.wait(f"pod/{pod}", ".status.containerStatuses[0].restartCount", "1")
    studio.wait(f"pod/{pod}", ".status.containerStatuses[0].started", "true")
    studio.wait(f"pod/{pod}", f'.status.conditions[?(@.type=="{READINESS_GATE}")].reason', "EarlierBoot")

    studio.agent_says(pod, "True")
    studio.wait_gate(pod, "True")
    studio.kubectl("wait", "--for=condition=Ready", "dd/tiny", "--timeout=60s")
    assert len(studio.events("GateClosed")) == 1
    assert len(studio.events("GateOpened")) == 2


def test_k24_what_was_validated_while_the_operator_was_away_opens_after_its_start(
    studio: Studio, operator: Operator
) -> None:
    studio.apply(deployment())
    pod = studio.running_pod()
    operator.stop()
    studio.agent_says(pod, "True")
    assert studio.condition(f"pod/{pod}", READINESS_GATE)["status"] == "False"
    operator.start()
    studio.wait_gate(pod, "True")


def test_a_validated_rollback_opens_the_gate_and_is_told_within_two_seconds(studio: Studio, operator: Operator) -> None:
    """By the times that the objects have: the Event's own, and when the API server took the status."""
    studio.apply(deployment())
    pod = studio.running_pod()
    rollback = {"time": now(), "reason": "OutputDiffers", "message": "1 frame", "from": "plan-1", "to": "seed"}
    studio.agent_says(
        pod,
        "True",
        phase="RolledBack",
        rollbacks=[rollback],
        conditions=[{"type": "RolledBack", "status": "True", "reason": "OutputDiffers", "message": "1 frame"}],
    )
    reported = datetime.now(UTC)
    told = "stowplan_operator_rollbacks_total"
    until(lambda: operator.counted(told, reason="OutputDiffers") == 1, "the metric counts it", seconds=2)
    studio.kubectl("wait", "--for=condition=Ready", "dd/tiny", "--timeout=60s")
    degraded = studio.condition("dd/tiny", "Degraded")
    assert (degraded["status"], degraded["reason"]) == ("True", "PlacementRolledBack")
    assert studio.get("dd", "tiny")["status"]["lastRollback"]["pod"] == pod
    (event,) = studio.events("PlacementRolledBack")
    assert event["type"] == "Warning"
    assert datetime.fromisoformat(event["eventTime"]) - reported < timedelta(seconds=2)
    assert taken(studio, "dd", "tiny", Manager.STATUS) - reported < timedelta(seconds=2)
    assert "OutputDiffers" in studio.kubectl("describe", "dd", "tiny")


def test_k26_a_gate_decided_for_one_uid_is_never_written_to_another(studio: Studio, operator: Operator) -> None:
    studio.apply(deployment())
    pod = studio.running_pod()
    before = studio.get("pod", pod)

    async def late_write() -> ApiError:
        client = await connect(str(studio.cluster.kubeconfig))
        condition = {"type": READINESS_GATE, "status": "True", "reason": "Late", "message": ""}
        body = {"metadata": {"uid": "uid-of-its-predecessor"}, "status": {"conditions": [condition]}}
        try:
            await client.patch_status(POD, studio.namespace, pod, body, Manager.GATE)
        except ApiError as error:
            return error
        finally:
            await client.close()
        raise AssertionError("the API server took a write for another uid")

    assert asyncio.run(late_write()).gone
    assert studio.condition(f"pod/{pod}", READINESS_GATE)["status"] == "False"
    assert studio.get("pod", pod)["metadata"]["uid"] == before["metadata"]["uid"]


def test_k9_k14_lists_alone_open_the_gate_when_no_watch_delivers(studio: Studio) -> None:
    """The whole operator without kopf, so that no event ever arrives: only the resync is left to notice."""
    settings = Settings(
        agent_image="unused",
        namespaces=(studio.namespace,),
        resync_seconds=1,
        metrics_port=0,
        workers=2,
        kubeconfig=str(studio.cluster.kubeconfig),
    )

    async def scenario() -> None:
        program = Program(settings)
        await program.start()
        try:
            await asyncio.to_thread(_validate_one_pod, studio)
        finally:
            await program.stop()

    asyncio.run(scenario())


def taken(studio: Studio, kind: str, name: str, manager: Manager) -> datetime:
    """When the API server took the last write of a manager, in whole seconds."""
    found = studio.cluster.json("-n", studio.namespace, "get", kind, name, "--show-managed-fields")
    times = [entry["time"] for entry in found["metadata"]["managedFields"] if entry["manager"] == manager]
    return datetime.fromisoformat(max(times))


def _validate_one_pod(studio: Studio) -> None:
    studio.apply(deployment())
    pod = studio.running_pod()
    studio.agent_says(pod, "True")
    studio.kubectl("wait", "--for=condition=Ready", "dd/tiny", "--timeout=60s")
    studio.kubectl("delete", "dd/tiny")
    until(lambda: not studio.pods(), "the pods are gone")
