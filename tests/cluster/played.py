"""Plays two parts on a real cluster: the operator, as a process here, and the agent of a pod, by its statuses."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from localcluster.client import Cluster
from localcluster.images import HOST

ROOT = Path(__file__).parents[2]
SERVE = (
    "mkdir -p /tmp/www && touch /tmp/www/health /tmp/www/liveness && httpd -p 8000 -h /tmp/www;"
    " while [ ! -e /tmp/stop ]; do sleep 0.1; done; rm /tmp/stop; exit 1"
)
"""A server whose /health always answers, so that only the gate keeps its pod from being Ready."""


def until(probe: Callable[[], object], what: str, *, seconds: float = 60) -> None:
    """Poll until true. For what kubectl cannot wait for."""
    deadline = time.monotonic() + seconds
    while not probe():
        assert time.monotonic() < deadline, f"after {seconds:.0f} s it is still not so that {what}"
        time.sleep(0.1)


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def deployment(name: str = "tiny", **spec: Any) -> dict[str, Any]:
    """A DiffusionDeployment whose pod is a few megabytes of busybox; its agent is played by the test."""
    server = {
        "name": "server",
        "command": ["sh", "-c", SERVE],
        "resources": {"requests": {"cpu": "50m"}, "limits": {"cpu": "200m"}},
    }
    whole: dict[str, Any] = {
        "model": {"source": "file:///models/tiny", "dtype": "float32"},
        "workload": {"shapes": [{"name": "clip", "width": 64, "height": 64, "frames": 5, "steps": 4}]},
        "resources": {"gpus": 0, "deviceMemory": "40Mi", "cpu": 1, "memory": "32Mi"},
        "serving": {"image": HOST, "imagePullPolicy": "Never"},
        "podTemplate": {"spec": {"terminationGracePeriodSeconds": 1, "containers": [server]}},
    }
    return {
        "apiVersion": "stowplan.dev/v1alpha1",
        "kind": "DiffusionDeployment",
        "metadata": {"name": name},
        "spec": whole | spec,
    }


def operators_kubeconfig(cluster: Cluster, namespace: str, path: Path, *, everywhere: bool = False) -> Path:
    """A kubeconfig of a ServiceAccount that has, in its namespace or everywhere, what the chart's role gives.

    So every call that a test has the operator make is also a test of that role.
    """
    text = (ROOT / "charts/stowplan/templates/operator/clusterrole.yaml").read_text()
    rules = yaml.safe_load(text[text.index("\nrules:") :])["rules"]
    rbac = "rbac.authorization.k8s.io"
    scope, name = ("Cluster", f"{namespace}-operator") if everywhere else ("", "operator")
    role = {"apiVersion": f"{rbac}/v1", "kind": f"{scope}Role", "metadata": {"name": name}, "rules": rules}
    binding = {
        "apiVersion": f"{rbac}/v1",
        "kind": f"{scope}RoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": rbac, "kind": f"{scope}Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": "operator", "namespace": namespace}],
    }
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "operator"}}
    cluster.apply(account, role, binding, namespace=namespace)
    token = cluster.kubectl("-n", namespace, "create", "token", "operator", "--duration=12h").strip()
    kubeconfig = yaml.safe_load(cluster.kubectl("config", "view", "--raw", "--minify", "--flatten"))
    kubeconfig["users"] = [{"name": kubeconfig["users"][0]["name"], "user": {"token": token}}]
    path.write_text(yaml.safe_dump(kubeconfig))
    path.chmod(0o600)
    return path


class Operator:
    """``python -m stowplan_operator`` with the chart's rights, its log, its metrics and a stop.

    It serves one namespace, or ``everywhere`` all of them; its account is in that namespace.
    """

    def __init__(
        self, cluster: Cluster, namespace: str, log: Path, *, resync_seconds: int = 300, everywhere: bool = False
    ) -> None:
        self._log = log
        self._liveness, self._metrics = _free_port(), _free_port()
        kubeconfig = operators_kubeconfig(cluster, namespace, log.with_suffix(".kubeconfig"), everywhere=everywhere)
        self._environment = os.environ | {
            "KUBECONFIG": str(kubeconfig),
            "STOWPLAN_AGENT_IMAGE": "unused",
            "STOWPLAN_WATCH_NAMESPACES": "" if everywhere else namespace,
            "STOWPLAN_RESYNC_SECONDS": str(resync_seconds),
            "STOWPLAN_LIVENESS_PORT": str(self._liveness),
            "STOWPLAN_METRICS_PORT": str(self._metrics),
            "MALLOC_ARENA_MAX": "2",  # As in its image.
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start, and wait until it answers; its first lists are behind it then."""
        with self._log.open("ab") as log:
            command = [sys.executable, "-m", "stowplan_operator"]
            self._process = subprocess.Popen(command, env=self._environment, stdout=log, stderr=log, cwd=ROOT)
        until(self.healthy, "the operator answers its liveness probe", seconds=60)

    @property
    def pid(self) -> int:
        """Of the process, which must have been started."""
        assert self._process is not None
        return self._process.pid

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(timeout=60)
            self._process = None

    def kill(self) -> None:
        """End it as the kernel would: nothing is finished, nothing is said."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(timeout=60)
        self._process = None

    def healthy(self) -> bool:
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{self._liveness}/healthz", timeout=5).status == 200
        except OSError:
            return False

    def counted(self, name: str, **labels: str) -> float:
        """The sum of a metric over the samples that have these labels."""
        text = urllib.request.urlopen(f"http://127.0.0.1:{self._metrics}/metrics", timeout=5).read().decode()
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        lines = [line for line in text.splitlines() if line.startswith((f"{name}{{", f"{name} "))]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if all(label in line for label in wanted))

    def writes(self) -> float:
        """Requests that could have changed something."""
        return sum(
            self.counted("stowplan_operator_api_requests_total", verb=verb) for verb in ("apply", "create", "patch")
        )

    def log(self) -> str:
        return self._log.read_text()


class Studio:
    """One namespace, seen as a user and as the agents of its pods."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace

    @classmethod
    def with_kinds(cls, cluster: Cluster, namespace: str) -> Studio:
        """The namespace, once the API server serves our two kinds."""
        cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "crds"))
        cluster.kubectl("wait", "--for=condition=Established", "-f", str(ROOT / "crds"), "--timeout=30s")
        return cls(cluster, namespace)

    def kubectl(self, *arguments: str, input: str | None = None) -> str:  # noqa: A002
        return self.cluster.kubectl("-n", self.namespace, *arguments, input=input)

    def apply(self, *objects: dict[str, Any]) -> None:
        self.cluster.apply(*objects, namespace=self.namespace)

    def get(self, kind: str, name: str) -> Any:
        return self.cluster.json("-n", self.namespace, "get", kind, name)

    def wait(self, target: str, path: str, value: str, seconds: int = 90) -> None:
        """Wait, by a watch, until a JSONPath has a value."""
        self.kubectl("wait", f"--for=jsonpath={{{path}}}={value}", target, f"--timeout={seconds}s")

    def wait_condition(self, target: str, type_: str, status: str, seconds: int = 90) -> None:
        self.wait(target, f'.status.conditions[?(@.type=="{type_}")].status', status, seconds)

    def wait_gate(self, pod: str, status: str) -> None:
        self.wait_condition(f"pod/{pod}", "stowplan.dev/placement-validated", status)

    def condition(self, target: str, type_: str) -> dict[str, Any]:
        """One condition as it stands; empty when there is none."""
        kind, name = target.split("/")
        found = self.get(kind, name).get("status", {}).get("conditions", [])
        return next((entry for entry in found if entry["type"] == type_), {})

    def pods(self) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = self.cluster.json("-n", self.namespace, "get", "pods")["items"]
        return [pod for pod in listed if "deletionTimestamp" not in pod["metadata"]]

    def running_pod(self, *, other_than: str = "") -> str:
        """The name of the one pod, once it runs and its ResidencyPlacement exists."""
        until(lambda: [p for p in self.pods() if p["metadata"]["name"] != other_than], "a pod exists", seconds=90)
        name: str = next(p["metadata"]["name"] for p in self.pods() if p["metadata"]["name"] != other_than)
        self.kubectl("wait", "--for=create", f"rp/{name}", "--timeout=60s")
        self.wait(f"pod/{name}", ".status.containerStatuses[0].started", "true")
        return name

    def events(self, reason: str) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = self.cluster.json("-n", self.namespace, "get", "events.events.k8s.io")["items"]
        return [event for event in listed if event["reason"] == reason and "stowplan" in event["reportingController"]]

    def agent_says(self, pod: str, validated: str, *, phase: str = "Ready", **status: Any) -> None:
        """The status that the agent of a pod would write in a boot that starts now."""
        placement = self.get("rp", pod)
        generation = placement["spec"]["generation"]
        extra = status.pop("conditions", [])
        conditions = [{"type": "Validated", "status": validated, "reason": "Proven", "message": ""}, *extra]
        for condition in conditions:
            condition |= {"observedGeneration": generation, "lastTransitionTime": now()}
        body = {
            "agent": {"bootId": uuid.uuid4().hex, "startedAt": now(), "version": "test"},
            "phase": phase,
            "conditions": conditions,
            **status,
        }
        patch = json.dumps({"status": body})
        self.kubectl("patch", "rp", pod, "--subresource=status", "--type=merge", f"--patch={patch}")


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
