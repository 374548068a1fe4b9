"""A podTemplate may hold anything: one that no pod could be made of changes no pod, and harms no other deployment."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from decisions import conditions, decided, running
from observations import deployment_of_user, placement, pod

from stowplan_operator.__main__ import DEEPEST_JSON
from stowplan_operator.kinds import Json
from stowplan_operator.render import DEEPEST_TEMPLATE, SpecError, read_spec

DEEPEST_OF_THE_SERVER = 10_000


def nested(levels: int) -> dict[str, Any]:
    inner: Any = 1
    for _ in range(levels):
        inner = {"a": inner}
    return {"spec": inner}


@pytest.mark.parametrize("levels", [DEEPEST_TEMPLATE, 3_000])
def test_a_template_too_deep_is_refused_by_name_and_gates_are_kept_up(levels: int) -> None:
    dd = deployment_of_user()
    bad: Json = deployment_of_user(podTemplate=nested(levels))
    decision = decided(bad, *running(dd, pod(dd, gate="False"))[1:], placement())
    assert conditions(decision)["Ready"][:2] == ("False", "SpecInvalid")
    assert "spec.podTemplate is nested deeper" in conditions(decision)["Ready"][2]
    assert decision.children == ()
    assert [write.patch.gate.open for write in decision.gates] == [True]


def test_the_deepest_that_is_taken_is_taken() -> None:
    read_spec(deployment_of_user(podTemplate=nested(DEEPEST_TEMPLATE - 1)))
    with pytest.raises(SpecError):
        read_spec(deployment_of_user(podTemplate=nested(DEEPEST_TEMPLATE)))


def test_a_name_that_is_no_name_is_refused_and_gates_are_kept_up() -> None:
    dd = deployment_of_user()
    bad = deployment_of_user(podTemplate={"spec": {"containers": [{"name": {"a": "b"}}]}})
    decision = decided(bad, *running(dd, pod(dd, gate="False"))[1:], placement())
    assert "spec.podTemplate.spec.containers[0].name" in conditions(decision)["Ready"][2]
    assert [write.patch.gate.open for write in decision.gates] == [True]


def test_what_the_api_server_takes_at_most_can_be_read() -> None:
    """In a process of its own, as the limit is one of the process."""
    text = f"'[' * {DEEPEST_OF_THE_SERVER + 50} + ']' * {DEEPEST_OF_THE_SERVER + 50}"
    program = f"import json, sys; sys.setrecursionlimit({DEEPEST_JSON}); json.dumps(json.loads({text}))"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
