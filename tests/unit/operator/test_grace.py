"""An agent knows how long it has to end, where a template says so; where none does, nothing is rendered for it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from observations import deployment_of_user

from stowplan_agent.serving.settings import GRACE
from stowplan_api.contract import GRACE_SECONDS
from stowplan_operator.decide.rollout import template_of
from stowplan_operator.kinds import Json
from stowplan_operator.render import children, read_spec
from stowplan_operator.render.naming import digest
from stowplan_operator.settings import Settings

TEN_MINUTES = {"spec": {"terminationGracePeriodSeconds": 600}}
BY_HAND = {"env": [{"name": "STOWPLAN_GRACE_SECONDS", "value": "90"}]}


def told(administrator: Json | None = None, **spec: Any) -> dict[str, list[str]]:
    """What each container's variable says."""
    dd = deployment_of_user(**spec)
    settings = Settings(agent_image="agent:test", agent_pod_template=administrator or {})
    template = children(dd, read_spec(dd), settings)[-1]["spec"]["template"]
    return {
        one["name"]: [entry["value"] for entry in one.get("env", ()) if entry["name"] == GRACE_SECONDS]
        for one in template["spec"]["containers"]
    }


@pytest.mark.parametrize(
    ("administrator", "spec", "expected"),
    [
        (None, {}, []),
        (None, {"podTemplate": TEN_MINUTES}, ["600"]),
        (TEN_MINUTES, {}, ["600"]),
        (TEN_MINUTES, {"podTemplate": {"spec": {"terminationGracePeriodSeconds": 45}}}, ["45"]),
        (TEN_MINUTES, {"podTemplate": {"spec": {"terminationGracePeriodSeconds": None}}}, []),
        (None, {"podTemplate": TEN_MINUTES, "serving": BY_HAND}, ["90"]),
        (None, {"podTemplate": {"spec": TEN_MINUTES["spec"] | {"containers": [{"name": "server"} | BY_HAND]}}}, ["90"]),
        (None, {"podTemplate": {"spec": {"terminationGracePeriodSeconds": 0}}}, []),
        (None, {"podTemplate": {"spec": {"terminationGracePeriodSeconds": "soon"}}}, []),
    ],
    ids=["nobody says", "user", "administrator", "user over administrator", "user takes it away", "serving.env",
         "podTemplate env", "at once", "no number"],
)  # fmt: skip
def test_the_server_is_told_what_the_merged_template_says(
    administrator: Json | None, spec: Json, expected: list[str]
) -> None:
    assert told(administrator, **spec) == {"server": expected}


def test_only_the_server_is_told() -> None:
    template = {"spec": TEN_MINUTES["spec"] | {"containers": [{"name": "sidecar", "image": "proxy:1"}]}}
    assert told(podTemplate=template) == {"server": ["600"], "sidecar": []}


def _without_grace(deployment: Json) -> str:
    """The hash of its pod template as a version rendered it that told no agent."""
    template = copy.deepcopy(deployment["spec"]["template"])
    del template["metadata"]["labels"]["stowplan.dev/template"]
    (server,) = template["spec"]["containers"]
    server["env"] = [entry for entry in server["env"] if entry["name"] != GRACE_SECONDS]
    return digest(template)


def test_pods_that_stand_are_not_replaced_to_be_told_and_the_next_ones_are() -> None:
    dd = deployment_of_user(podTemplate=TEN_MINUTES)
    settings = Settings(agent_image="agent:test")
    newest = children(dd, read_spec(dd), settings)[-1]
    plain = children(dd, read_spec(dd), settings, _without_grace(newest))[-1]
    assert GRACE_SECONDS not in str(plain)
    assert children(dd, read_spec(dd), settings, template_of(plain))[-1] == plain
    changed = deployment_of_user(podTemplate=TEN_MINUTES, serving={"port": 8001})
    after = children(changed, read_spec(changed), settings, template_of(plain))[-1]
    assert GRACE_SECONDS in str(after)
    assert children(changed, read_spec(changed), settings, template_of(after))[-1] == after


def test_it_is_the_variable_that_the_agent_reads() -> None:
    assert GRACE_SECONDS == GRACE
