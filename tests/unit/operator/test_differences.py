"""What a real API server stored for our own manifests needs no write, and each real difference is seen.

golden/stored.json is a DiffusionDeployment and its children as kube-apiserver 1.34 returned them, defaults, other
managers and field lists included: K6 and K11 in one file. When a change of the rendering makes it differ, every user's
pods restart on upgrade; if that is wanted, make the file anew from a cluster.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from observations import NOW, SETTINGS

from stowplan_api.contract import Manager
from stowplan_operator.decide import decide
from stowplan_operator.differences import would_change
from stowplan_operator.kinds import DEPLOYMENT, Json, kind_of
from stowplan_operator.observed import Key, Observed
from stowplan_operator.render import children, read_spec

STORED: list[Json] = json.loads((Path(__file__).parent / "golden" / "stored.json").read_text())["items"]
DD = STORED[0]
BY_KIND = {raw["kind"]: raw for raw in STORED}


def rendered(kind: str) -> Json:
    return next(copy.deepcopy(child) for child in children(DD, read_spec(DD), SETTINGS) if child["kind"] == kind)


@pytest.mark.parametrize("kind", [kind for kind in BY_KIND if kind != "DiffusionDeployment"])
def test_k6_k11_what_is_stored_is_what_is_rendered(kind: str) -> None:
    assert not would_change(rendered(kind), BY_KIND[kind], Manager.WORKLOAD)


def test_nothing_is_decided_about_children_that_are_there() -> None:
    store = Observed()
    for raw in STORED:
        store.put(kind_of(raw), raw)
    assert decide(store.snapshot(Key("studio", "wan")), NOW, SETTINGS).children == ()


def test_a_missing_object_is_a_difference() -> None:
    assert would_change(rendered("Service"), None, Manager.WORKLOAD)


def server(manifest: Json) -> Json:
    container: Json = manifest["spec"]["template"]["spec"]["containers"][0]
    return container


CHANGES: dict[str, Callable[[Json], object]] = {
    "a value": lambda m: m["spec"].update(replicas=2),
    "a label": lambda m: m["metadata"]["labels"].update(new="1"),
    "a deep value": lambda m: server(m)["readinessProbe"].update(periodSeconds=3),
    "a new variable": lambda m: server(m)["env"].append({"name": "NEW", "value": "1"}),
    "a variable's value": lambda m: server(m)["env"][-1].update(value="2"),
    "one variable less": lambda m: server(m)["env"].pop(),
    "one volume less": lambda m: m["spec"]["template"]["spec"]["volumes"].pop(),
    "one mount less": lambda m: server(m)["volumeMounts"].pop(),
    "a map's key less": lambda m: m["spec"]["template"]["spec"].pop("nodeSelector"),
    "a plain list": lambda m: server(m)["command"].append("--more"),
    "a shorter plain list": lambda m: server(m)["command"].pop(),
    "another strategy": lambda m: m["spec"].update(strategy={"type": "Recreate"}),
    "one owner more": lambda m: m["metadata"]["ownerReferences"].append({"uid": "x", "kind": "K", "name": "n"}),
}


@pytest.mark.parametrize("name", CHANGES)
def test_each_difference_is_seen(name: str) -> None:
    manifest = rendered(DEPLOYMENT.kind)
    CHANGES[name](manifest)
    assert would_change(manifest, BY_KIND[DEPLOYMENT.kind], Manager.WORKLOAD)


def test_what_others_add_is_none_of_ours() -> None:
    there = copy.deepcopy(BY_KIND[DEPLOYMENT.kind])
    template = there["spec"]["template"]
    template["metadata"]["annotations"] = {"kubectl.kubernetes.io/restartedAt": "now"}
    template["spec"]["containers"].append({"name": "injected", "image": "mesh"})
    server(there)["env"].append({"name": "INJECTED", "value": "1"})
    assert not would_change(rendered(DEPLOYMENT.kind), there, Manager.WORKLOAD)


def test_what_somebody_changed_of_ours_is_put_back() -> None:
    there = copy.deepcopy(BY_KIND["Service"])
    there["spec"]["selector"]["stowplan.dev/deployment"] = "elsewhere"
    assert would_change(rendered("Service"), there, Manager.WORKLOAD)


def test_an_object_that_we_never_applied_is_applied() -> None:
    there = copy.deepcopy(BY_KIND["Service"])
    there["metadata"]["managedFields"] = []
    assert would_change(rendered("Service"), there, Manager.WORKLOAD)
