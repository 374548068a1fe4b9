"""C5: an operator that is newer than the served definitions says so, trusts no spec, and replaces no pod for one."""

from __future__ import annotations

import asyncio
import copy
import logging
from typing import Any

import pytest
from decisions import conditions, running
from fake_server import FakeServer, Fault
from observations import NOW, SETTINGS, deployment_of_user, existing_children, placement, pod, snapshot
from process import RESYNC, Process, condition_of, controller
from test_faulty_server import gate_of
from virtual_time import run

from stowplan_api.crd import KINDS, schema
from stowplan_operator.decide import decide
from stowplan_operator.decide.dropped import Dropped
from stowplan_operator.definitions import missing_fields
from stowplan_operator.kinds import Json

KNOWN = {kind.name: schema(kind) for kind in KINDS}


def older(*paths: str, kind: str = "DiffusionDeployment") -> dict[str, Any]:
    """The schema of a kind before these fields were added."""
    served = copy.deepcopy(KNOWN[kind])
    for path in paths:
        *parents, last = path.split(".")
        node = served
        for name in parents:
            node = node["properties"][name.removesuffix("[]")]
            node = node["items"] if name.endswith("[]") else node
        del node["properties"][last]
    return served


@pytest.mark.parametrize(
    "paths",
    [
        (),
        ("spec.paused",),
        ("spec.rollout.strategy",),
        ("spec.workload.shapes[].weight",),
        ("spec.residency.placement.components[].groups[].slots",),
        ("status.recalibrated",),
        ("spec.paused", "status.countedRollbacks[].time", "status.rollbacks"),
    ],
)
def test_c5_each_missing_field_is_named(paths: tuple[str, ...]) -> None:
    assert sorted(missing_fields(KNOWN["DiffusionDeployment"], older(*paths))) == sorted(paths)


def test_a_definition_that_keeps_everything_or_is_not_shown_misses_nothing() -> None:
    known = KNOWN["DiffusionDeployment"]
    assert missing_fields(known, {"type": "object", "x-kubernetes-preserve-unknown-fields": True}) == ()
    assert missing_fields(known, {}) == ()


def test_c5_no_deployment_is_ready_on_a_spec_that_may_lack_something_and_no_pod_is_replaced() -> None:
    old, new = deployment_of_user(), deployment_of_user(generation=2, resources={"gpus": 1, "memory": "48Gi"})
    objects = [new, *existing_children(old), pod(old, gate="False"), placement()]
    decision = decide(snapshot(*objects), NOW, SETTINGS, (), Dropped.of(["spec.resources.cpu"]))
    found = conditions(decision)
    assert found["Ready"][:2] == ("False", "DefinitionOutdated")
    assert found["Stalled"][0] == "True"
    assert "drops spec.resources.cpu" in found["Ready"][2]
    assert found["Available"][0] == "True"
    assert decision.children == ()
    assert decision.gates[0].patch.gate.open, "what is validated serves on"


def test_c5_a_fully_rolled_out_deployment_is_not_ready_either() -> None:
    dd = deployment_of_user()
    decision = decide(snapshot(*running(dd, pod(dd), placement())), NOW, SETTINGS, (), Dropped(spec=("spec.paused",)))
    assert conditions(decision)["Ready"][:2] == ("False", "DefinitionOutdated")


def test_a_field_that_the_status_may_not_have_is_left_out_and_harms_nothing_else() -> None:
    dd = deployment_of_user()
    dropped = Dropped.of(["status.countedRollbacks", "status.conditions[].observedGeneration"])
    decision = decide(snapshot(*running(dd, pod(dd), placement())), NOW, SETTINGS, (), dropped)
    assert conditions(decision)["Ready"][:2] == ("True", "RolledOut")
    assert decision.status is not None
    status = decision.status["status"]
    assert "countedRollbacks" not in status
    assert all("observedGeneration" not in entry for entry in status["conditions"])


def served(*paths: str) -> Json:
    """The API server's schemas as discovery shows them."""
    schemas = {}
    for kind in KNOWN:
        entry = older(*paths, kind=kind) if kind == "DiffusionDeployment" else copy.deepcopy(KNOWN[kind])
        entry["x-kubernetes-group-version-kind"] = [{"group": "stowplan.dev", "version": "v1alpha1", "kind": kind}]
        schemas[f"dev.stowplan.v1alpha1.{kind}"] = entry
    return schemas


def missing(process: Process) -> float | None:
    labels = {"kind": "DiffusionDeployment"}
    return process.metrics.registry.get_sample_value("stowplan_operator_definition_missing_fields", labels)


def test_c5_the_operator_says_so_at_start_and_goes_on_when_the_definition_is_updated(
    caplog: pytest.LogCaptureFixture,
) -> None:
    dd = deployment_of_user(status={})
    server = FakeServer(dd, pod(dd, gate=None), placement())
    server.schemas = served("spec.paused")

    async def scenario() -> None:
        process = Process(server)
        process.start()
        await asyncio.sleep(2 * RESYNC)
        errors = [record.message for record in caplog.records if record.levelno == logging.ERROR]
        assert len(errors) == 1, "once, and not at every look"
        assert "drops spec.paused; update it" in errors[0]
        assert missing(process) == 1
        assert condition_of(server, "Ready")["reason"] == "DefinitionOutdated"
        assert gate_of(server) == "True", "the gate is kept up"

        server.schemas = served()
        await asyncio.sleep(RESYNC + 30)
        controller(server)
        await asyncio.sleep(30)
        assert missing(process) == 0
        assert condition_of(server, "Ready")["status"] == "True"
        await process.stop()

    run(scenario())


def test_a_server_that_shows_no_schemas_is_taken_as_it_is() -> None:
    dd = deployment_of_user(status={})
    server = FakeServer(dd, pod(dd, gate=None), placement())
    server.fault = lambda request: Fault(403, "forbidden") if request.path.startswith("/openapi/") else None

    async def scenario() -> None:
        process = Process(server)
        process.start()
        await asyncio.sleep(30)
        controller(server)
        await asyncio.sleep(30)
        assert condition_of(server, "Ready")["status"] == "True"
        await process.stop()

    run(scenario())
