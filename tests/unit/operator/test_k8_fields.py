"""K8: every field of the spec, one by one, changes a child; the table has every field that there is."""

from __future__ import annotations

from typing import Any

import pytest
from test_render import rendered

from stowplan_api.diffusion_deployment import DiffusionDeploymentSpec
from stowplan_operator.kinds import Json

SHAPE = {"name": "clip", "width": 832, "height": 480, "frames": 81, "steps": 40}
RESOURCES = {"gpus": 1, "cpu": 8, "memory": "96Gi"}
MODEL = {"source": "hf://studio/wan", "dtype": "bfloat16"}
LAYERS = {"name": "blocks", "residentLayers": 1, "pinnedLayers": [0]}
PART = {"name": "vae", "mode": "Layerwise", "groups": [LAYERS]}
OFFLOADED = {"name": "vae", "mode": "Offload"}


def shapes(**change: Any) -> Json:
    return {"workload": {"shapes": [SHAPE | change]}}


def pinned(**change: Any) -> Json:
    return {"residency": {"mode": "Pinned", "placement": {"components": [PART | change]}}}


def layers(**change: Any) -> Json:
    return pinned(groups=[LAYERS | change])


def offloaded(**change: Any) -> Json:
    return {"residency": {"mode": "Pinned", "placement": {"components": [OFFLOADED | change]}}}


ROLLING = {"strategy": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}}
FIELDS: dict[str, tuple[Json, Json]] = {
    "replicas": ({}, {"replicas": 2}),
    "model.source": ({}, {"model": MODEL | {"source": "hf://studio/other"}}),
    "model.revision": ({}, {"model": MODEL | {"revision": "v2"}}),
    "model.dtype": ({}, {"model": MODEL | {"dtype": "float16"}}),
    "workload.shapes.name": ({}, shapes(name="other")),
    "workload.shapes.width": ({}, shapes(width=640)),
    "workload.shapes.height": ({}, shapes(height=640)),
    "workload.shapes.frames": ({}, shapes(frames=1)),
    "workload.shapes.steps": ({}, shapes(steps=4)),
    "workload.shapes.weight": ({}, shapes(weight=3)),
    "resources.gpus": ({}, {"resources": RESOURCES | {"gpus": 2}}),
    "resources.gpuResource": ({}, {"resources": RESOURCES | {"gpuResource": "example.com/gpu"}}),
    "resources.cpu": ({}, {"resources": RESOURCES | {"cpu": 4}}),
    "resources.memory": ({}, {"resources": RESOURCES | {"memory": "64Gi"}}),
    "resources.deviceMemory": ({}, {"resources": RESOURCES | {"deviceMemory": "24Gi"}}),
    "parallelism.ulysses": ({}, {"parallelism": {"ulysses": 2}}),
    "parallelism.ring": ({}, {"parallelism": {"ring": 2}}),
    "residency.mode": ({}, {"residency": {"mode": "Static"}}),
    "residency.placement.components.name": (pinned(), pinned(name="other")),
    "residency.placement.components.mode": (pinned(), offloaded()),
    "residency.placement.components.prefetch": (offloaded(), offloaded(prefetch=True)),
    "residency.placement.components.pinnedBytes": (offloaded(), offloaded(pinnedBytes=[1])),
    "residency.placement.components.looseLifetime": (pinned(), pinned(looseLifetime="Forward")),
    "residency.placement.components.groups.name": (pinned(), layers(name="other")),
    "residency.placement.components.groups.residentLayers": (pinned(), layers(residentLayers=2)),
    "residency.placement.components.groups.policy": (pinned(), layers(policy="Leading")),
    "residency.placement.components.groups.lifetime": (pinned(), layers(lifetime="Forward")),
    "residency.placement.components.groups.slots": (pinned(), layers(slots=3)),
    "residency.placement.components.groups.pinnedLayers": (pinned(), layers(pinnedLayers=[1])),
    "residency.placement.components.groups.shardedLayers": (pinned(), layers(shardedLayers=1)),
    "residency.deviceReserve": ({}, {"residency": {"deviceReserve": "1Gi"}}),
    "residency.hostReserve": ({}, {"residency": {"hostReserve": "1Gi"}}),
    "residency.validation.maxSlowdownPercent": ({}, {"residency": {"validation": {"maxSlowdownPercent": 9}}}),
    "residency.validation.reproducible": ({}, {"residency": {"validation": {"reproducible": False}}}),
    "residency.prefer.keep": ({}, {"residency": {"prefer": {"keep": ["vae"]}}}),
    "residency.prefer.neverKeep": ({}, {"residency": {"prefer": {"neverKeep": ["vae"]}}}),
    "serving.port": ({}, {"serving": {"port": 8001}}),
    "serving.image": ({}, {"serving": {"image": "other"}}),
    "serving.imagePullPolicy": ({}, {"serving": {"imagePullPolicy": "Always"}}),
    "serving.env.name": ({}, {"serving": {"env": [{"name": "A"}]}}),
    "serving.env.value": ({"serving": {"env": [{"name": "A"}]}}, {"serving": {"env": [{"name": "A", "value": "1"}]}}),
    "rollout.strategy": ({}, {"rollout": {"strategy": "RollingUpdate"}}),
    "rollout.rollingUpdate.maxSurge": ({"rollout": {"strategy": "RollingUpdate"}}, {"rollout": ROLLING}),
    "rollout.rollingUpdate.maxUnavailable": (
        {"rollout": ROLLING},
        {"rollout": ROLLING | {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}},
    ),
    "rollout.progressDeadlineSeconds": ({}, {"rollout": {"progressDeadlineSeconds": 99}}),
    "podTemplate": ({}, {"podTemplate": {"spec": {"nodeSelector": {"a": "b"}}}}),
}


def leaves(node: Json, definitions: Json, path: str = "") -> list[str]:
    """Every field of the spec that has none below it."""
    for choice in node.get("anyOf", ()):
        if choice.get("type") != "null":
            return leaves(choice, definitions, path)
    if "$ref" in node:
        return leaves(definitions[node["$ref"].rpartition("/")[2]], definitions, path)
    if node.get("type") == "array" and "prefixItems" not in node:
        return leaves(node["items"], definitions, path)
    below = node.get("properties") or {}
    found = [leaf for name, child in below.items() for leaf in leaves(child, definitions, f"{path}.{name}".strip("."))]
    return found or [path]


def test_k8_no_field_of_the_spec_is_left_out_of_the_table() -> None:
    document = DiffusionDeploymentSpec.model_json_schema(mode="validation")
    # paused is what keeps changes from the child.
    assert sorted({*FIELDS, "paused"}) == sorted(leaves(document, document["$defs"]))


@pytest.mark.parametrize("field", FIELDS)
def test_k8_a_change_of_each_field_changes_a_child(field: str) -> None:
    before, after = FIELDS[field]
    assert rendered(**before) != rendered(**after)
