"""What the token of a serving pod may do: report on its own ResidencyPlacement, and nothing else.

The token is the one that the kubelet put into the pod; the operator, the roles and the policy are the chart's. Every
test here is a line of docs/threats.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from cluster.attempts import APPLY, Bearer, attempts, discovered
from cluster.played import Studio, deployment, now, until
from cluster.releases import installed, namespaced
from localcluster.client import Cluster
from stowplan_api.contract import READINESS_GATE

PLACEMENT = "/apis/stowplan.dev/v1alpha1/namespaces/{}/residencyplacements/{}"
OF_EVERYBODY = {
    ("authentication.k8s.io", "selfsubjectreviews", "create"),
    ("authorization.k8s.io", "selfsubjectaccessreviews", "create"),
    ("authorization.k8s.io", "selfsubjectrulesreviews", "create"),
}
"""Kubernetes gives these to whoever it knows: asking who one is, and what one may do."""
OF_AGENTS = {
    ("stowplan.dev", "residencyplacements", "get"),
    ("stowplan.dev", "residencyplacements/status", "get"),
    ("stowplan.dev", "residencyplacements/status", "patch"),
}


@dataclass(frozen=True)
class Intruder:
    """Whoever has taken over the one container of a serving pod."""

    studio: Studio
    pod: str
    other: str
    """A pod of another deployment in the same namespace."""
    token: Bearer

    def report(self, pod: str, **status: object) -> tuple[int, str]:
        """Try to write the status of a pod's ResidencyPlacement."""
        path = PLACEMENT.format(self.studio.namespace, pod) + "/status"
        code, answer = self.token.send("PATCH", path, {"status": status}, APPLY)
        return code, answer.get("message", "") if isinstance(answer, dict) else answer

    def inside(self, command: str) -> str:
        """What a command prints in the container."""
        return self.studio.kubectl("exec", self.pod, "--container=server", "--", "sh", "-c", command).strip()


@pytest.fixture(scope="module")
def intruder(local_cluster: Cluster) -> Iterator[Intruder]:
    # The played servers are busybox, which mounts of this machine would hide.
    release = installed(local_cluster, wait=True, agent={"podTemplate": {}})
    with release, namespaced(local_cluster, "test-intruder") as studio:
        studio.apply(deployment("taken"), deployment("other"))
        pods = {name: of_deployment(studio, name) for name in ("taken", "other")}
        token = studio.kubectl(
            "exec", pods["taken"], "--", "cat", "/var/run/secrets/kubernetes.io/serviceaccount/token"
        )
        yield Intruder(studio, pods["taken"], pods["other"], Bearer(local_cluster, token.strip()))


def of_deployment(studio: Studio, name: str) -> str:
    """The pod of a deployment, once it runs and has its ResidencyPlacement."""
    pods = [f"--selector=stowplan.dev/deployment={name}", "--output=name"]
    until(lambda: studio.kubectl("get", "pods", *pods), f"{name} has a pod", seconds=120)
    pod = studio.kubectl("get", "pods", *pods).split()[0].removeprefix("pod/")
    studio.wait(f"pod/{pod}", ".status.containerStatuses[0].started", "true", seconds=120)
    studio.kubectl("wait", "--for=create", f"rp/{pod}", "--timeout=60s")
    return pod


def test_each_verb_on_each_kind_in_its_own_namespace(intruder: Intruder, local_cluster: Cluster) -> None:
    tried = list(attempts(discovered(local_cluster)))
    let_in = {one.right for one in tried if intruder.token.may(one, intruder.studio.namespace, intruder.pod)}
    assert let_in == OF_AGENTS | OF_EVERYBODY
    assert len(tried) > 400


@pytest.mark.parametrize("namespace", ["kube-system", "stowplan-system"])
def test_each_verb_on_each_kind_in_another_namespace(
    intruder: Intruder, local_cluster: Cluster, namespace: str
) -> None:
    tried = attempts([resource for resource in discovered(local_cluster) if resource.namespaced])
    assert {one.right for one in tried if intruder.token.may(one, namespace, "any")} == set()


def test_it_reports_for_its_own_pod(intruder: Intruder) -> None:
    assert intruder.report(intruder.pod, phase="Load") == (200, "")
    assert intruder.studio.get("rp", intruder.pod)["status"]["phase"] == "Load"


def test_it_reads_the_placement_of_another_pod_by_its_name(intruder: Intruder) -> None:
    path = PLACEMENT.format(intruder.studio.namespace, intruder.other)
    assert intruder.token.send("GET", path)[1]["spec"]["deployment"] == "other"


def test_it_cannot_report_for_another_pod(intruder: Intruder) -> None:
    code, message = intruder.report(intruder.other, phase="Ready")
    assert code == 403
    assert f"may be written only with the token of its own pod; this one is of pod {intruder.pod}" in message
    assert "phase" not in intruder.studio.get("rp", intruder.other).get("status", {})


def test_it_cannot_touch_the_spec_or_labels_of_its_placement_by_way_of_the_status(intruder: Intruder) -> None:
    path = PLACEMENT.format(intruder.studio.namespace, intruder.pod)
    before = intruder.studio.get("rp", intruder.pod)
    forged = {"spec": {"generation": 99}, "metadata": {"labels": {"stowplan.dev/deployment": "other"}}}
    assert intruder.token.send("PATCH", path, forged, APPLY)[0] == 403
    intruder.token.send("PATCH", f"{path}/status", forged, APPLY)
    after = intruder.studio.get("rp", intruder.pod)
    assert (after["spec"], after["metadata"].get("labels")) == (before["spec"], before["metadata"].get("labels"))


def test_what_it_reports_is_bounded(intruder: Intruder) -> None:
    condition = {"type": "Validated", "status": "True", "reason": "Proven", "lastTransitionTime": now()}
    code, message = intruder.report(intruder.pod, conditions=[{**condition, "message": "x" * 40_000}])
    assert (code, "Too long" in message) == (422, True)
    code, message = intruder.report(intruder.pod, conditions=[{**condition, "type": f"T{n}"} for n in range(40)])
    assert (code, "must have at most" in message) == (422, True)


def test_a_lie_opens_its_own_gate_and_no_other(intruder: Intruder) -> None:
    condition = {"type": "Validated", "status": "True", "reason": "Proven", "message": "", "observedGeneration": 1}
    agent = {"bootId": "forged", "startedAt": now(), "version": "forged"}
    code, _ = intruder.report(intruder.pod, agent=agent, conditions=[{**condition, "lastTransitionTime": now()}])
    assert code == 200
    intruder.studio.wait_gate(intruder.pod, "True")
    assert intruder.studio.condition(f"pod/{intruder.other}", READINESS_GATE).get("status") != "True"


def test_it_cannot_speak_as_anybody_else(intruder: Intruder) -> None:
    for user in ("stowplan-admin", "system:serviceaccount:stowplan-system:stowplan-operator"):
        status, _ = intruder.token.send("GET", "/api/v1/namespaces", Impersonate_User=user)
        assert status == 403


@pytest.mark.parametrize("path", ["/metrics", "/logs/", "/debug/pprof/", "/configz"])
def test_it_sees_nothing_of_the_server_itself(intruder: Intruder, path: str) -> None:
    assert intruder.token.send("GET", path)[0] == 403


def test_it_runs_without_privileges_on_a_file_system_that_it_cannot_change(intruder: Intruder) -> None:
    assert intruder.inside("id -u; id -g").split() == ["65532", "65532"]
    facts = dict(
        line.split(":\t", 1) for line in intruder.inside("cat /proc/self/status").splitlines() if ":\t" in line
    )
    assert (int(facts["CapEff"], 16), int(facts["CapBnd"], 16)) == (0, 0)
    assert (facts["NoNewPrivs"], facts["Seccomp"]) == ("1", "2")
    assert intruder.inside("for at in / /bin /etc; do touch $at/x 2>/dev/null && echo $at; done; true") == ""


def test_a_token_dies_with_its_pod(intruder: Intruder) -> None:
    """The last of this module: it ends the pod."""
    path = PLACEMENT.format(intruder.studio.namespace, intruder.pod)
    assert intruder.token.send("GET", path)[0] == 200
    intruder.studio.kubectl("delete", f"pod/{intruder.pod}", "--grace-period=1")
    until(lambda: intruder.token.send("GET", path)[0] == 401, "the token is refused", seconds=90)
