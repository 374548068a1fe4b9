"""Cases of the catalogue that are pure and have no better place; the others carry their number in their own name."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from decisions import conditions, decided, running, written
from fake_server import FakeServer
from observations import condition, deployment_of_user, existing_children, placement, pod
from process import Process, condition_of, controller
from test_decisions import K1_OOM, K2_CRASHING
from test_faulty_server import POD_NAME, gate_of
from test_render import rendered
from virtual_time import run

from stowplan_operator.kinds import POD, RESIDENCY_PLACEMENT, Json

CHART = Path(__file__).parents[3] / "charts" / "stowplan" / "templates"


def test_k1_a_validated_pod_that_runs_out_of_memory_is_unready_in_one_reconcile() -> None:
    dd = deployment_of_user()
    objects = running(dd, pod(dd), placement())
    objects = written(objects, decided(*objects))
    assert conditions_of(objects)["Ready"]["status"] == "True"
    objects[-2] = pod(dd, server=K1_OOM, ready=False, gate="True")
    decision = decided(*objects)
    assert conditions(decision)["Ready"][:2] == ("False", "PodFailed")
    assert "OOMKilled" in conditions(decision)["Ready"][2]
    assert [write.patch.gate.open for write in decision.gates] == [False]


def test_k2_a_pod_that_crash_loops_from_the_start_is_never_ready_however_often_it_is_looked_at() -> None:
    dd = deployment_of_user(status={})
    objects = running(dd, pod(dd, server=K2_CRASHING, ready=False, gate=None), placement(started=None, validated=None))
    for _ in range(5):
        objects = written(objects, decided(*objects))
        assert conditions_of(objects)["Ready"]["status"] != "True"


STRATEGIES = [
    ({"strategy": "Recreate"}, {"type": "Recreate"}),
    (
        {"strategy": "RollingUpdate", "rollingUpdate": {"maxSurge": 2, "maxUnavailable": 0}},
        {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 2, "maxUnavailable": 0}},
    ),
    ({"strategy": "RollingUpdate"}, {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}),
]


@pytest.mark.parametrize(("asked", "child"), STRATEGIES)
def test_k7_a_rollout_strategy_reaches_the_child_unchanged(asked: Json, child: Json) -> None:
    assert rendered(rollout=asked)["Deployment"]["spec"]["strategy"] == child


@pytest.mark.parametrize("replicas", [0, 1, 5])
def test_k12_the_number_that_others_wrote_into_scale_is_the_childs_and_the_selector_finds_the_pods(
    replicas: int,
) -> None:
    dd = deployment_of_user(replicas=replicas)
    decision = decided(dd, *existing_children(dd, pods=0))
    assert decision.children == ()
    assert rendered(replicas=replicas)["Deployment"]["spec"]["replicas"] == replicas
    assert decision.status is not None
    key, _, value = decision.status["status"]["selector"].partition("=")
    assert rendered()["Deployment"]["spec"]["template"]["metadata"]["labels"][key] == value
    assert "spec" not in decision.status, "the spec is the user's and the autoscaler's"


@pytest.mark.parametrize("ready", [True, False])
@pytest.mark.parametrize("said", ["corresponding condition does not exist", "some new words"])
def test_k21_the_gate_is_read_from_conditions_and_ready_is_never_written(ready: bool, said: str) -> None:
    dd = deployment_of_user()
    lagging = pod(dd, ready=ready, gate="False")
    lagging["status"]["conditions"][0] |= {"reason": "ReadinessGatesNotReady", "message": said}
    (write,) = decided(*running(dd, lagging), placement()).gates
    assert [entry["type"] for entry in write.patch.body["status"]["conditions"]] == ["stowplan.dev/placement-validated"]
    assert write.patch.gate.open


def flip(server: FakeServer, status: str) -> None:
    server.change(RESIDENCY_PLACEMENT, POD_NAME, lambda raw: raw["status"]["conditions"][-1].update(status=status))


def test_k10_k25_the_gate_and_the_deployment_follow_the_placement_alone_within_a_second() -> None:
    dd = deployment_of_user(status={})
    server = FakeServer(dd, pod(dd, gate=None), placement(validated="False"))

    async def scenario() -> None:
        process = Process(server)
        process.start()
        await asyncio.sleep(30)
        controller(server)
        await asyncio.sleep(30)
        assert gate_of(server) == "False"
        versions = []
        server.watchers.append(lambda _, kind, raw: versions.append(kind) if kind == POD else None)
        flip(server, "True")
        await asyncio.sleep(1)
        assert gate_of(server) == "True"
        assert condition_of(server, "Ready")["status"] == "True"
        assert versions == [POD], "no event of the pod but the gate's own"
        await process.stop()

    run(scenario())


def test_k24_what_was_validated_while_the_operator_was_away_opens_from_a_list() -> None:
    dd = deployment_of_user(status={})
    server = FakeServer(dd, pod(dd, gate=None), placement(validated="False"))

    async def scenario() -> None:
        first = Process(server)
        first.start()
        await asyncio.sleep(30)
        await first.stop()
        flip(server, "True")
        await asyncio.sleep(1000)
        assert gate_of(server) == "False", "gates keep their value"
        second = Process(server)
        second.hears = False
        second.start()
        await asyncio.sleep(5)
        assert gate_of(server) == "True"
        await second.stop()

    run(scenario())


def test_c1_memory_is_request_and_limit_and_the_agent_is_told_of_it() -> None:
    (server,) = rendered()["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert server["resources"]["requests"] == server["resources"]["limits"]
    limit = next(entry for entry in server["env"] if entry["name"] == "STOWPLAN_MEMORY_LIMIT")
    assert limit["valueFrom"]["resourceFieldRef"]["resource"] == "limits.memory"


def test_c3_a_pod_that_was_never_ready_does_not_hold_up_a_drain() -> None:
    budget = rendered()["PodDisruptionBudget"]["spec"]
    assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    assert budget["maxUnavailable"] == 1


def test_c4_without_an_operator_nothing_stands_in_a_pods_way_and_new_ones_stay_unready() -> None:
    texts = [path.read_text() for path in CHART.rglob("*.yaml")]
    assert texts
    assert not [text for text in texts if "WebhookConfiguration" in text]
    for manifest in rendered().values():
        assert "finalizers" not in manifest["metadata"]
        assert all(not owner["blockOwnerDeletion"] for owner in manifest["metadata"]["ownerReferences"])
    template = rendered()["Deployment"]["spec"]["template"]
    # A gate in the template without a condition on the pod counts as False: the kubelet asks nobody.
    assert {"conditionType": "stowplan.dev/placement-validated"} in template["spec"]["readinessGates"]


def conditions_of(objects: list[Json]) -> dict[str, Json]:
    return {entry["type"]: entry for entry in objects[0]["status"]["conditions"]}


def test_k11_a_status_of_an_earlier_version_is_taken_over_and_no_child_changes() -> None:
    last = {"conditions": [condition("Ready", "True", "RolledOut")], "unknown": 1, "rollbacks": 2}
    dd = deployment_of_user(status=last)
    decision = decided(*running(dd, pod(dd), placement()))
    assert decision.children == ()
    assert decision.status is not None
