"""What a pod of several devices gets, and that a pod of one gets nothing of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from observations import GIB, SETTINGS, deployment_of_user

from stowplan_api.diffusion_deployment import DiffusionDeploymentSpec
from stowplan_api.host_reserve import host_reserve
from stowplan_api.quantity import parse_quantity
from stowplan_operator.kinds import Json
from stowplan_operator.render import children, read_spec
from stowplan_operator.render.several_devices import A_RANK, shared_memory_bytes

EMULATED = {"gpus": 0, "deviceMemory": "40Mi", "cpu": 2, "memory": "4Gi"}


def pod_spec(**spec: Any) -> Json:
    dd = deployment_of_user(**spec)
    rendered: Json = children(dd, read_spec(dd), SETTINGS)[-1]["spec"]["template"]["spec"]
    return rendered


def environment(spec: Json) -> dict[str, str]:
    (server,) = spec["containers"]
    return {entry["name"]: entry.get("value", "") for entry in server["env"]}


def gpus(number: int, memory: str = "192Gi") -> Json:
    return {"gpus": number, "cpu": 16, "memory": memory}


@pytest.mark.parametrize(
    ("spec", "devices", "parallelism"),
    [
        ({"resources": gpus(2)}, 2, None),
        ({"resources": gpus(2), "parallelism": {"ulysses": 2}}, 2, {"ulysses": 2, "ring": 1}),
        ({"resources": gpus(8), "parallelism": {"ulysses": 4, "ring": 2}}, 8, {"ulysses": 4, "ring": 2}),
        ({"resources": EMULATED, "parallelism": {"ring": 2}}, 2, {"ulysses": 1, "ring": 2}),
    ],
    ids=["the model chooses", "ulysses", "both", "emulated cards"],
)
def test_a_pod_of_several_devices_knows_them_and_shares_memory(
    spec: Json, devices: int, parallelism: Json | None
) -> None:
    rendered = pod_spec(**spec)
    (server,), variables = rendered["containers"], environment(rendered)
    asked = spec["resources"]["gpus"]
    assert server["resources"]["limits"].get("nvidia.com/gpu") == (str(asked) if asked else None)
    assert server["resources"]["requests"] == server["resources"]["limits"]
    sent = DiffusionDeploymentSpec.model_validate_json(variables["STOWPLAN_SPEC"])
    assert sent.ranks == devices
    assert (None if sent.parallelism is None else sent.parallelism.to_json()) == parallelism
    (volume,) = (one for one in rendered["volumes"] if one["name"] == "shared-memory")
    assert volume["emptyDir"]["medium"] == "Memory"
    assert {"name": "shared-memory", "mountPath": "/dev/shm"} in server["volumeMounts"]
    size, limit = (
        parse_quantity(volume["emptyDir"]["sizeLimit"]),
        parse_quantity(server["resources"]["limits"]["memory"]),
    )
    assert limit - limit // 20 <= size <= limit


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"resources": gpus(4)}, 192 * GIB - 192 * GIB // 20 + 4 * A_RANK),
        ({"resources": gpus(4), "residency": {"hostReserve": "32Gi"}}, 160 * GIB + 4 * A_RANK),
        ({"resources": gpus(2, "1Gi")}, GIB - (256 << 20) + 2 * A_RANK),
        ({"resources": gpus(8), "residency": {"hostReserve": "0"}}, 192 * GIB),
        ({"resources": gpus(2, "1Gi"), "residency": {"hostReserve": "2Gi"}}, 2 * A_RANK),
    ],
    ids=["the default reserve", "a stated one", "a small pod", "never above the limit", "nothing may be pinned"],
)
def test_shared_memory_is_what_may_be_pinned_and_a_little_a_rank(spec: Json, expected: int) -> None:
    assert shared_memory_bytes(read_spec(deployment_of_user(**spec))) == expected


@pytest.mark.parametrize("memory", [GIB, 16 * GIB, 192 * GIB])
def test_the_reserve_is_the_one_that_the_agent_plans_with(memory: int) -> None:
    spec = read_spec(deployment_of_user(resources=gpus(2, str(memory))))
    assert shared_memory_bytes(spec) == memory - host_reserve(memory, None) + 2 * A_RANK


@pytest.mark.parametrize("resources", [gpus(1), EMULATED], ids=["one GPU", "one emulated card"])
def test_a_pod_of_one_device_gets_nothing_of_it(resources: Json) -> None:
    plain = pod_spec(resources=resources)
    assert "shared-memory" not in json.dumps(plain)


def test_several_devices_change_nothing_of_what_a_container_may_do() -> None:
    one, four = pod_spec(resources=gpus(1)), pod_spec(resources=gpus(4))
    assert four["securityContext"] == one["securityContext"]
    assert four["containers"][0]["securityContext"] == one["containers"][0]["securityContext"]
    assert four["containers"][0]["ports"] == one["containers"][0]["ports"]
