"""What the operator renders, as whole files to read and compare, and what must hold of all of it.

To accept a change of what is rendered: STOWPLAN_WRITE_GOLDEN=1 pytest tests/unit/operator/test_render.py, and read the
difference. A changed pod template restarts every pod of every user.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from observations import SETTINGS, deployment_of_user

from stowplan_api.diffusion_deployment import DiffusionDeploymentSpec
from stowplan_operator.kinds import Json
from stowplan_operator.render import SpecError, children, read_spec
from stowplan_operator.render.deadlines import progress_deadline_seconds, request_seconds
from stowplan_operator.settings import Settings

SHAPE = {"name": "clip", "width": 832, "height": 480, "frames": 81, "steps": 40}
GOLDEN = Path(__file__).parent / "golden"
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "emulated": {
        "resources": {"gpus": 0, "deviceMemory": "40Mi", "cpu": 1, "memory": "2Gi"},
        "model": {"source": "pvc://models/tiny/wan", "dtype": "float32"},
    },
    "ranks": {
        "resources": {"gpus": 4, "cpu": 32, "memory": "192Gi"},
        "parallelism": {"ulysses": 4},
        "podTemplate": {"spec": {"terminationGracePeriodSeconds": 600}},
    },
    "everything": {
        "replicas": 3,
        "paused": True,
        "serving": {
            "port": 9000,
            "image": "registry.example/agent:1",
            "imagePullPolicy": "Always",
            "env": [{"name": "STOWPLAN_FAULTS", "value": "validate"}, {"name": "EMPTY", "value": ""}],
        },
        "rollout": {
            "strategy": "RollingUpdate",
            "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
            "progressDeadlineSeconds": 1234,
        },
        "residency": {"mode": "Static", "deviceReserve": "1Gi"},
        "podTemplate": {
            "metadata": {"labels": {"team": "video", "stowplan.dev/deployment": "stolen"}},
            "spec": {
                "serviceAccountName": "own-account",
                "nodeSelector": {"gpu": "h200"},
                "readinessGates": [{"conditionType": "example.com/mesh"}],
                "volumes": [{"name": "scratch", "hostPath": {"path": "/fast"}}],
                "containers": [
                    {"name": "server", "livenessProbe": None, "env": [{"name": "HOME", "value": "/home/user"}]},
                    {"name": "sidecar", "image": "proxy:1"},
                ],
            },
        },
    },
}


def rendered(settings: Settings = SETTINGS, **spec: Any) -> dict[str, Json]:
    dd = deployment_of_user(generation=7, **spec)
    return {manifest["kind"]: manifest for manifest in children(dd, read_spec(dd), settings)}


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str) -> None:
    text = yaml.safe_dump_all(rendered(**CASES[name]).values(), sort_keys=False, width=120)
    path = GOLDEN / f"{name}.yaml"
    if os.environ.get("STOWPLAN_WRITE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("name", CASES)
def test_every_pod_has_the_gate_and_the_labels_that_select_it(name: str) -> None:
    deployment = rendered(**CASES[name])["Deployment"]
    template = deployment["spec"]["template"]
    assert {"conditionType": "stowplan.dev/placement-validated"} in template["spec"]["readinessGates"]
    for key, value in deployment["spec"]["selector"]["matchLabels"].items():
        assert template["metadata"]["labels"][key] == value


@pytest.mark.parametrize("name", CASES)
def test_k16_no_label_or_annotation_of_the_users_object_reaches_a_child(name: str) -> None:
    for manifest in rendered(**CASES[name]).values():
        text = json.dumps(manifest["metadata"])
        assert "argocd" not in text
        assert "team" not in text


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model", {"source": "hf://studio/other", "dtype": "bfloat16"}),
        ("model", {"source": "hf://studio/wan", "dtype": "float16"}),
        ("workload", {"shapes": [{"name": "clip", "width": 640, "height": 480, "frames": 81, "steps": 40}]}),
        ("resources", {"gpus": 2, "cpu": 8, "memory": "96Gi"}),
        ("resources", {"gpus": 1, "cpu": 8, "memory": "64Gi"}),
        ("residency", {"mode": "Static"}),
        ("residency", {"validation": {"maxSlowdownPercent": 9}}),
        ("residency", {"prefer": {"keep": ["vae"]}}),
        ("serving", {"port": 8001}),
        ("serving", {"image": "other"}),
        ("serving", {"env": [{"name": "A", "value": "1"}]}),
        ("podTemplate", {"spec": {"nodeSelector": {"a": "b"}}}),
    ],
)
def test_k8_a_change_that_a_pod_must_know_of_changes_the_template(field: str, value: Any) -> None:
    assert rendered()["Deployment"]["spec"]["template"] != rendered(**{field: value})["Deployment"]["spec"]["template"]


@pytest.mark.parametrize(
    ("field", "value", "path"),
    [
        ("replicas", 4, "replicas"),
        ("rollout", {"strategy": "RollingUpdate"}, "strategy"),
        ("rollout", {"progressDeadlineSeconds": 99}, "progressDeadlineSeconds"),
    ],
)
def test_k8_a_change_of_the_rollout_reaches_the_deployment_and_restarts_nothing(
    field: str, value: Any, path: str
) -> None:
    before, after = rendered()["Deployment"]["spec"], rendered(**{field: value})["Deployment"]["spec"]
    assert before[path] != after[path]
    assert before["template"] == after["template"]


def test_layers_of_the_pod_template_user_over_administrator_over_rendered() -> None:
    middle = {"spec": {"containers": [{"name": "server", "imagePullPolicy": "Never", "tty": True}]}}
    settings = Settings(agent_image="stowplan-agent:test", agent_pod_template=middle)
    user = {"spec": {"containers": [{"name": "server", "tty": False}]}}
    (server,) = rendered(settings, podTemplate=user)["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert (server["imagePullPolicy"], server["tty"], server["image"]) == ("Never", False, "stowplan-agent:test")


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (
            {"spec": {"containers": [{"image": "x"}]}},
            "spec.podTemplate.spec.containers[0] has no 'name'; spec.podTemplate.spec.containers is merged by it",
        ),
        (
            {"spec": {"containers": {"name": "server"}}},
            "spec.podTemplate.spec.containers must be a list of mappings, not dict",
        ),
        ({"spec": {"securityContext": 5}}, "spec.podTemplate.spec.securityContext must be a mapping, not int"),
        ({"metadata": {"labels": []}}, "spec.podTemplate.metadata.labels must be a mapping, not list"),
    ],
)
def test_an_unusable_pod_template_is_refused_by_name(template: Json, message: str) -> None:
    with pytest.raises(SpecError) as error:
        rendered(podTemplate=template)
    assert str(error.value) == message


def test_the_agent_reads_back_the_spec_it_was_sent() -> None:
    dd = deployment_of_user(**CASES["everything"])
    (server, _) = children(dd, read_spec(dd), SETTINGS)[-1]["spec"]["template"]["spec"]["containers"]
    text = next(entry["value"] for entry in server["env"] if entry["name"] == "STOWPLAN_SPEC")
    sent = DiffusionDeploymentSpec.model_validate_json(text)
    whole = read_spec(dd)
    assert sent.model_copy(update={"replicas": 3, "paused": True}) == whole.model_copy(
        update={"rollout": sent.rollout, "pod_template": None}
    )


MEMORY_READ = (96 << 30) // 100_000_000
SMALL = {"name": "small", "width": 320, "height": 240, "frames": 5, "steps": 10}


@pytest.mark.parametrize(
    ("spec", "seconds"),
    [
        ({}, 600 + 2 * MEMORY_READ + 4 * 2621),
        ({"model": {"source": "file:///models/wan"}}, 600 + MEMORY_READ + 4 * 2621),
        ({"workload": {"shapes": [SHAPE, SMALL]}}, 600 + 2 * MEMORY_READ + 4 * 2621 + 12),
    ],
    ids=["downloaded and read", "read", "a second shape is probed too"],
)
def test_the_deadline_covers_loading_a_probe_of_every_shape_and_three_proofs(spec: Json, seconds: int) -> None:
    assert request_seconds(read_spec(deployment_of_user()).workload.shapes[0]) == 32_760 * 40 // 500 + 1
    assert progress_deadline_seconds(read_spec(deployment_of_user(**spec))) == seconds


def test_the_deadline_is_the_users_when_given_and_a_day_at_most() -> None:
    assert progress_deadline_seconds(read_spec(deployment_of_user(rollout={"progressDeadlineSeconds": 77}))) == 77
    huge = {"shapes": [{"name": "x", "width": 16384, "height": 16384, "frames": 10000, "steps": 1000}]}
    assert progress_deadline_seconds(read_spec(deployment_of_user(workload=huge))) == 86_400
