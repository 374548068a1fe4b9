"""A shared device is never planned for as a whole one: refused where it is named, kept away from where it is not."""

from __future__ import annotations

from typing import Any

import pytest
from decisions import conditions, decided, running
from observations import SETTINGS, condition, deployment_of_user, placement, pod, snapshot

from stowplan_operator.decide.rollout import rollout
from stowplan_operator.decide.trouble import trouble
from stowplan_operator.kinds import Json
from stowplan_operator.render import SpecError, children, read_spec

GPU = {"gpus": 1, "cpu": 8, "memory": "96Gi"}
WHOLE = {"key": "nvidia.com/gpu.sharing-strategy", "operator": "NotIn", "values": ["mps", "time-slicing"]}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def pod_spec(**spec: Any) -> Json:
    dd = deployment_of_user(**spec)
    rendered: Json = children(dd, read_spec(dd), SETTINGS)[-1]["spec"]["template"]["spec"]
    return rendered


def terms(spec: Json) -> list[Json]:
    found: list[Json] = spec.get("affinity", {}).get("nodeAffinity", {}).get(REQUIRED, {}).get("nodeSelectorTerms", [])
    return found


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        (GPU, [{"matchExpressions": [WHOLE]}]),
        (GPU | {"gpuResource": "nvidia.com/mig-3g.40gb"}, [{"matchExpressions": [WHOLE]}]),
        (GPU | {"deviceMemory": "20Gi"}, []),
        (GPU | {"deviceMemory": "20Gi", "gpuResource": "nvidia.com/gpu.shared"}, []),
        (GPU | {"gpuResource": "amd.com/gpu"}, []),
        (GPU | {"gpus": 0, "deviceMemory": "40Mi"}, []),
    ],
)
def test_a_pod_without_a_device_limit_goes_to_whole_devices_only(resources: Json, expected: list[Json]) -> None:
    assert terms(pod_spec(resources=resources)) == expected


def test_each_alternative_of_a_users_own_affinity_is_kept_and_narrowed() -> None:
    h200 = {"key": "gpu", "operator": "In", "values": ["h200"]}
    zone = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}
    preferred = [{"weight": 1, "preference": {"matchExpressions": [h200]}}]
    theirs = {
        REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [h200]}, zone]},
        "preferredDuringSchedulingIgnoredDuringExecution": preferred,
    }
    spec = pod_spec(podTemplate={"spec": {"affinity": {"nodeAffinity": theirs, "podAffinity": {}}}})
    assert terms(spec) == [{"matchExpressions": [h200, WHOLE]}, zone | {"matchExpressions": [WHOLE]}]
    assert spec["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] == preferred
    assert spec["affinity"]["podAffinity"] == {}


@pytest.mark.parametrize(
    "spec",
    [
        {"resources": GPU | {"gpuResource": "nvidia.com/gpu.shared"}},
        {
            "podTemplate": {
                "spec": {"containers": [{"name": "server", "resources": {"limits": {"nvidia.com/gpu.shared": 1}}}]}
            }
        },
    ],
)
def test_a_share_without_a_limit_is_refused_by_name(spec: Json) -> None:
    with pytest.raises(
        SpecError, match=r"nvidia\.com/gpu\.shared is a share of a device; state spec\.resources\.device"
    ):
        pod_spec(**spec)


def test_a_refused_share_is_told_and_leaves_the_pods_that_serve_alone() -> None:
    before = deployment_of_user()
    objects = running(before, pod(before), placement())
    objects[0] = deployment_of_user(generation=2, resources=GPU | {"gpuResource": "nvidia.com/gpu.shared"})
    decision = decided(*objects)
    assert decision.children == ()
    assert [gate.patch.gate.open for gate in decision.gates] == [True]
    assert conditions(decision)["Stalled"][:2] == ("True", "SpecInvalid")
    assert "state spec.resources.deviceMemory" in conditions(decision)["Ready"][2]


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.", True),
        ("0/2 nodes are available: 2 Insufficient nvidia.com/gpu.", False),
    ],
)
def test_a_pod_that_no_node_takes_for_it_says_what_to_state(said: str, hint: bool) -> None:
    dd = deployment_of_user()
    waiting = pod(dd, started=None, ready=False, gate=None)
    unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said}
    waiting["status"]["conditions"].append(unschedulable)
    objects = running(dd, waiting, placement(validated=None, started=None))
    template = waiting["metadata"]["labels"]["stowplan.dev/template"]
    found = trouble(rollout(snapshot(*objects), template, 1), ())
    assert found is not None
    assert said in found.message
    assert ("spec.resources.deviceMemory" in found.message) is hint


def test_a_share_that_only_the_agent_can_see_is_told_in_its_words() -> None:
    dd = deployment_of_user()
    sentence = "another process holds 9 GiB of NVIDIA L4; state spec.resources.deviceMemory"
    refused = placement(
        phase="Failed", validated="False", conditions=(condition("Calibrated", "False", "SharedDevice", sentence),)
    )
    said = conditions(decided(*running(dd, pod(dd, ready=False, gate="False"), refused)))
    assert said["Ready"][:2] == ("False", "PlacementFailed")
    assert said["Ready"][2].startswith(sentence)
    assert said["Stalled"][0] == "True"
