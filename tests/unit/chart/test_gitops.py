"""docs/gitops.md is true: its table, by kstatus' rules and by the very Lua that it gives to Argo CD."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import lupa
import pytest
import yaml

import kstatus
from stowplan_api.contract import DeploymentCondition, DeploymentReason
from stowplan_api.crd import DIFFUSION_DEPLOYMENT, definition

PAGE = (Path(__file__).parents[3] / "docs" / "gitops.md").read_text(encoding="utf-8")
BLOCKS = [
    block for text in re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL) for block in yaml.safe_load_all(text)
]


def condition(type_: DeploymentCondition, status: str, reason: DeploymentReason, message: str = "") -> dict[str, Any]:
    return {"type": str(type_), "status": status, "reason": str(reason), "message": message}


def seen(*conditions: dict[str, Any], generation: int = 2, observed: int = 2) -> dict[str, Any]:
    return {
        "metadata": {"name": "wan22", "generation": generation},
        "status": {"observedGeneration": observed, "conditions": list(conditions)},
    }


def unseen() -> dict[str, Any]:
    """As the API server stores a new object: with the default of the schema."""
    schema = definition(DIFFUSION_DEPLOYMENT)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return {"metadata": {"name": "wan22", "generation": 1}, "status": schema["properties"]["status"]["default"]}


Kind, Reason = DeploymentCondition, DeploymentReason
READY = condition(Kind.READY, "True", Reason.ROLLED_OUT, "1 of 1 pods validated")
NOT_READY = condition(Kind.READY, "False", Reason.CALIBRATING, "pod a: Probe")
CASES = {
    "unseen": (unseen(), "InProgress", "Progressing"),
    "first reconcile": (seen(condition(Kind.READY, "Unknown", Reason.RECONCILING)), "InProgress", "Progressing"),
    "another generation": (seen(READY, generation=3), "InProgress", "Progressing"),
    "rolling out": (
        seen(NOT_READY, condition(Kind.RECONCILING, "True", Reason.RECONCILING)),
        "InProgress",
        "Progressing",
    ),
    "validated": (seen(READY, condition(Kind.DEGRADED, "False", Reason.HEALTHY)), "Current", "Healthy"),
    "rolled back": (
        seen(READY, condition(Kind.DEGRADED, "True", Reason.PLACEMENT_ROLLED_BACK, "too slow")),
        "Current",
        "Healthy",
    ),
    "stalled": (
        seen(NOT_READY, condition(Kind.STALLED, "True", Reason.PLACEMENT_INFEASIBLE, "7 GiB short")),
        "Failed",
        "Degraded",
    ),
    "paused": (seen(condition(Kind.READY, "False", Reason.PAUSED, "paused")), "InProgress", "Suspended"),
    "late": (seen(condition(Kind.READY, "False", Reason.PROGRESS_DEADLINE_EXCEEDED)), "InProgress", "Progressing"),
}


def argo(obj: dict[str, Any]) -> tuple[str, str]:
    """Run the health check of the page on an object, without Lua's libraries but the few that Argo CD leaves."""
    (text,) = [
        value
        for block in BLOCKS
        for key, value in (block.get("data") or {}).items()
        if key == f"resource.customizations.health.stowplan.dev_{DIFFUSION_DEPLOYMENT.name}"
    ]
    lua = lupa.LuaRuntime(unpack_returned_tuples=True)
    check = lua.eval("function(code, obj) return load(code, 'health', 't', {obj = obj, ipairs = ipairs})() end")
    health = check(text, lua.table_from(obj, recursive=True))
    return health["status"], health["message"]


@pytest.mark.parametrize("name", CASES)
def test_flux_and_argo_see_what_the_page_says(name: str) -> None:
    obj, flux, argo_cd = CASES[name]
    assert (kstatus.judge(obj), argo(obj)[0]) == (flux, argo_cd)


def test_the_message_is_the_one_that_a_person_needs() -> None:
    assert argo(CASES["rolling out"][0])[1] == "pod a: Probe"
    assert argo(CASES["stalled"][0])[1] == "7 GiB short"
    assert argo(CASES["rolled back"][0])[1] == "too slow"


def test_neither_ever_calls_a_deployment_finished_that_is_not_ready() -> None:
    for obj, flux, argo_cd in CASES.values():
        conditions = {entry["type"]: entry["status"] for entry in obj["status"].get("conditions", [])}
        finished = (
            conditions.get("Ready") == "True" and obj["status"]["observedGeneration"] == obj["metadata"]["generation"]
        )
        assert (flux == "Current") == (argo_cd == "Healthy") == finished


def test_an_object_in_deletion_is_terminating() -> None:
    obj = seen(READY)
    obj["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert kstatus.judge(obj) == "Terminating"
