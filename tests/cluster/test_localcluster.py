"""The local cluster keeps the promises that the other cluster tests stand on."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest

from localcluster import build, images, packages
from localcluster.client import Cluster
from localcluster.errors import ClusterError
from localcluster.host_python import HostPython
from localcluster.images import HOST, USER_ID
from localcluster.versions import KUBERNETES

GATE = "stowplan.dev/placement-validated"
CALL = """
import json, os, ssl, urllib.error, urllib.request
folder = "/var/run/secrets/kubernetes.io/serviceaccount/"
server = "https://%(KUBERNETES_SERVICE_HOST)s:%(KUBERNETES_SERVICE_PORT)s" % os.environ
context = ssl.create_default_context(cafile=folder + "ca.crt")
headers = {"Authorization": "Bearer " + open(folder + "token").read(), "Content-Type": "application/json"}
def call(method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(server + path, data=data, headers=headers, method=method)
    try:
        with urllib.request.urlopen(request, context=context, timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)
"""


def pod(name: str, script: str, *, memory: str = "128Mi", gates: tuple[str, ...] = ()) -> dict[str, Any]:
    """A pod like a serving one: restricted, guaranteed memory, this machine's Python; runs ``script`` once."""
    template: Any = HostPython.here().pod_template("main")
    container = template["spec"]["containers"][0]
    container["command"] = [str(HostPython.here().python), "-c", textwrap.dedent(script)]
    container["resources"] = {"limits": {"memory": memory, "cpu": "500m"}}
    container["securityContext"] = {
        "capabilities": {"drop": ["ALL"]},
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    spec = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "readinessGates": [{"conditionType": gate} for gate in gates],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": template["spec"] | spec,
    }


def shell_pod(name: str, command: str) -> dict[str, Any]:
    container = {"name": "main", "image": HOST, "imagePullPolicy": "Never", "command": ["sh", "-c", command]}
    spec = {"containers": [container], "dnsPolicy": "Default", "terminationGracePeriodSeconds": 1}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": spec}


def finished(cluster: Cluster, namespace: str, name: str, phase: str = "Succeeded") -> str:
    """Wait until the pod ended in ``phase``; what it printed."""
    cluster.kubectl(
        "-n", namespace, "wait", f"pod/{name}", f"--for=jsonpath={{.status.phase}}={phase}", "--timeout=90s"
    )
    return cluster.kubectl("-n", namespace, "logs", name)


def test_node_is_ready_and_components_report_the_pinned_version(local_cluster: Cluster) -> None:
    (node,) = local_cluster.json("get", "nodes")["items"]
    assert node["status"]["nodeInfo"]["kubeletVersion"] == KUBERNETES.version
    assert local_cluster.json("version")["serverVersion"]["gitVersion"] == KUBERNETES.version


def test_restricted_pod_reaches_the_api_server_with_its_own_token(local_cluster: Cluster, namespace: str) -> None:
    script = (
        CALL
        + """
status, review = call("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews",
                      {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"})
lines = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(json.dumps({"status": status, "user": review["status"]["userInfo"], "uid": os.getuid(),
                  "capabilities": lines["CapBnd"].strip(), "seccomp": lines["Seccomp"].strip()}))
"""
    )
    local_cluster.apply(pod("caller", script), namespace=namespace)
    said = json.loads(finished(local_cluster, namespace, "caller"))
    assert said["status"] == 201
    assert said["user"]["username"] == f"system:serviceaccount:{namespace}:default"
    assert said["user"]["extra"]["authentication.kubernetes.io/pod-name"] == ["caller"]
    assert (said["uid"], int(said["capabilities"], 16), said["seccomp"]) == (USER_ID, 0, "2")


def test_container_above_its_memory_limit_is_oom_killed(local_cluster: Cluster, namespace: str) -> None:
    local_cluster.apply(pod("glutton", "held = bytearray(b'x') * (256 << 20)", memory="64Mi"), namespace=namespace)
    finished(local_cluster, namespace, "glutton", phase="Failed")
    (container,) = local_cluster.json("-n", namespace, "get", "pod", "glutton")["status"]["containerStatuses"]
    assert container["state"]["terminated"]["reason"] == "OOMKilled"


def test_policy_lets_a_pod_write_only_the_object_of_its_own_name(local_cluster: Cluster, namespace: str) -> None:
    claim = "request.userInfo.extra[?'authentication.kubernetes.io/pod-name'].orValue([])"
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]
    only_here = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    accounts = f"request.userInfo.username.startsWith('system:serviceaccount:{namespace}:')"
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": namespace},
        "spec": {
            "matchConstraints": {"resourceRules": rules} | only_here,
            "matchConditions": [{"name": "pods", "expression": accounts}],
            "validations": [{"expression": f"object.metadata.name in {claim}", "message": "not your own"}],
        },
    }
    binding = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": namespace},
        "spec": {"policyName": namespace, "validationActions": ["Deny"]},
    }
    # A policy works a moment after it was written: the pod asks again, dry, until it is denied.
    script = (
        CALL
        + f"""
import time
path, deadline = "/api/v1/namespaces/{namespace}/configmaps", time.monotonic() + 60
def create(name):
    return call("POST", path + "?dryRun=All", {{"metadata": {{"name": name}}}})
while (denied := create("another"))[0] == 201 and time.monotonic() < deadline:
    time.sleep(0.2)
print(json.dumps([denied[0], denied[1].get("message"), create("writer")[0]]))
"""
    )
    local_cluster.kubectl("-n", namespace, "create", "role", "writer", "--verb=create", "--resource=configmaps")
    local_cluster.kubectl(
        "-n", namespace, "create", "rolebinding", "writer", "--role=writer", f"--serviceaccount={namespace}:default"
    )
    local_cluster.apply(policy, binding)
    try:
        local_cluster.apply(pod("writer", script), namespace=namespace)
        status, message, own = json.loads(finished(local_cluster, namespace, "writer"))
    finally:
        kinds = "validatingadmissionpolicy,validatingadmissionpolicybinding"
        local_cluster.kubectl("delete", kinds, namespace)
    assert (status, own) == (422, 201)
    assert "not your own" in message


def test_gate_keeps_a_running_pod_unready_until_its_condition_is_true(local_cluster: Cluster, namespace: str) -> None:
    local_cluster.apply(pod("gated", "import signal; signal.pause()", gates=(GATE,)), namespace=namespace)
    local_cluster.kubectl("-n", namespace, "wait", "pod/gated", "--for=condition=ContainersReady", "--timeout=60s")
    with pytest.raises(Exception, match="timed out"):
        local_cluster.kubectl("-n", namespace, "wait", "pod/gated", "--for=condition=Ready", "--timeout=1s")
    patch = json.dumps({"status": {"conditions": [{"type": GATE, "status": "True"}]}})
    local_cluster.kubectl(
        "-n", namespace, "patch", "pod", "gated", "--subresource=status", "--type=strategic", f"--patch={patch}"
    )
    local_cluster.kubectl("-n", namespace, "wait", "pod/gated", "--for=condition=Ready", "--timeout=30s")


def test_service_leads_to_its_pod_and_exec_answers(local_cluster: Cluster, namespace: str) -> None:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "greeter"},
        "spec": {"selector": {"app": "greeter"}, "ports": [{"port": 80, "targetPort": 8080}]},
    }
    greeter = shell_pod(
        "greeter", "mkdir /tmp/www && echo hello > /tmp/www/index.html && exec busybox httpd -f -p 8080 -h /tmp/www"
    )
    local_cluster.apply(service, greeter, shell_pod("visitor", "exec sleep 600"), namespace=namespace)
    local_cluster.kubectl(
        "-n", namespace, "wait", "pod/greeter", "pod/visitor", "--for=condition=Ready", "--timeout=60s"
    )
    address = local_cluster.json("-n", namespace, "get", "service", "greeter")["spec"]["clusterIP"]
    # kube-proxy writes the new address within its sync period; wget asks until then.
    ask = f"for i in $(seq 60); do wget -q -O - http://{address}/ && exit; sleep 0.5; done; exit 1"
    assert local_cluster.kubectl("-n", namespace, "exec", "visitor", "--", "sh", "-c", ask) == "hello\n"


def test_pods_end_at_once_when_asked(local_cluster: Cluster, namespace: str) -> None:
    obliging = shell_pod("obliging", "trap 'exit 0' TERM; sleep 600 & wait")
    obliging["spec"]["terminationGracePeriodSeconds"] = 600
    local_cluster.apply(obliging, namespace=namespace)
    local_cluster.kubectl("-n", namespace, "wait", "pod/obliging", "--for=condition=Ready", "--timeout=60s")
    local_cluster.kubectl("-n", namespace, "delete", "pod", "obliging", "--timeout=60s")
    assert "obliging" not in local_cluster.kubectl("-n", namespace, "get", "pods", "--output=name")


def test_a_loaded_image_runs(local_cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    name = f"stowplan.dev/{namespace}:loaded"
    layer = images.layer(packages.BUSYBOX.read_bytes())
    image = images.Image(name, ("/bin/echo", "from a file"), "")
    (archive := tmp_path / "image.tar").write_bytes(images.archive([image], layer, build.architecture()))
    assert local_cluster.load_image(archive) == [name]
    spec = {"restartPolicy": "Never", "containers": [{"name": "main", "image": name, "imagePullPolicy": "Never"}]}
    local_cluster.apply(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "echo"}, "spec": spec}, namespace=namespace
    )
    assert finished(local_cluster, namespace, "echo") == "from a file\n"


def test_loading_what_is_no_image_is_a_clear_error(local_cluster: Cluster, tmp_path: Path) -> None:
    (text := tmp_path / "text.tar").write_text("not a tar")
    with pytest.raises(ClusterError, match=r"did not take .*text\.tar as an image archive"):
        local_cluster.load_image(text)
    with pytest.raises(ClusterError, match=r"There is no image file .*absent\.tar"):
        local_cluster.load_image(tmp_path / "absent.tar")


def test_audit_log_says_who_wrote_what(local_cluster: Cluster, namespace: str) -> None:
    local_cluster.kubectl("-n", namespace, "create", "configmap", "noted")
    writes = [event for event in local_cluster.audit() if event["objectRef"].get("namespace") == namespace]
    (noted,) = [event for event in writes if event["objectRef"].get("name") == "noted"]
    assert (noted["verb"], noted["user"]["username"]) == ("create", "stowplan-admin")
