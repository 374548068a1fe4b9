"""The main job on a real cluster with the real operator and the real agent: apply, wait for Ready, and it is right.

Every other test of the cluster plays one of the two parts; here both are the product, on an emulated card. One module,
one release of the chart, one pod a story.
"""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.played import until
from localcluster import chart
from localcluster.client import Cluster
from localcluster.host_python import HostPython
from stowplan_api.contract import READINESS_GATE
from stowplan_api.crd import KINDS

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "examples" / "tiny_models.py"
NAME = "tiny-wan"
QUIET = 20
"""Polls, a tenth of a second apart, in which the operator wrote nothing."""


@pytest.fixture(scope="module")
def installed(local_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The chart with a tiny checkpoint mounted at /models; removed afterwards with its CRDs."""
    models = tmp_path_factory.mktemp("models")
    models.chmod(0o755)
    python = HostPython.here().python
    subprocess.run([python, PROGRAM, NAME, models / NAME], check=True, capture_output=True)
    for folder in (models, *models.parents):
        if folder.is_relative_to(tmp_path_factory.getbasetemp().parent):
            folder.chmod(0o755)  # pytest's folders are for their owner only, and pods run as somebody else
    values = HostPython.here().chart_values() | {"crds": {"keep": False}}
    agent: Any = values["agent"]
    spec = agent["podTemplate"]["spec"]
    spec["volumes"].append({"name": "models", "hostPath": {"path": str(models), "type": "Directory"}})
    spec["containers"][0]["volumeMounts"].append({"name": "models", "mountPath": "/models", "readOnly": True})
    definitions = [f"crd/{kind.plural}.stowplan.dev" for kind in KINDS]
    local_cluster.kubectl("delete", *definitions, "--ignore-not-found")
    chart.install(local_cluster.kubeconfig, values)
    yield local_cluster
    chart.uninstall(local_cluster.kubeconfig)
    local_cluster.kubectl("delete", "namespace", chart.NAMESPACE, "--wait=false")


class Story:
    """One DiffusionDeployment in a namespace of its own."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace

    def apply(self, example: str = NAME, **spec: Any) -> None:
        data = yaml.safe_load((ROOT / "examples" / f"{example}.yaml").read_text())
        data["spec"] |= spec
        self.cluster.apply(data, namespace=self.namespace)

    def kubectl(self, *arguments: str) -> str:
        return self.cluster.kubectl("-n", self.namespace, *arguments)

    def get(self, what: str) -> Any:
        return self.cluster.json("-n", self.namespace, "get", what)

    def condition(self, what: str, type_: str) -> dict[str, Any]:
        """The condition of the object, or of the only object of a kind; empty when it is not there."""
        found = self.get(what)
        one = found["items"][0] if found.get("items") else found
        conditions = one.get("status", {}).get("conditions", [])
        return next((condition for condition in conditions if condition["type"] == type_), {})

    def wait(self, name: str, condition: str = "Ready") -> None:
        self.kubectl("wait", f"--for=condition={condition}", f"dd/{name}", "--timeout=240s")

    def placement(self) -> dict[str, Any]:
        status: dict[str, Any] = self.get("rp")["items"][0]["status"]
        return status

    def pod(self) -> dict[str, Any]:
        pods = [pod for pod in self.get("pods")["items"] if "deletionTimestamp" not in pod["metadata"]]
        pod: dict[str, Any] = pods[0]
        return pod

    def gate(self) -> str:
        conditions = self.pod()["status"].get("conditions", [])
        return next((str(found["status"]) for found in conditions if found["type"] == READINESS_GATE), "False")

    def health(self) -> int:
        """The status of /health, asked from inside the pod; 0 before the server listens."""
        ask = (
            "import urllib.request, urllib.error\n"
            "try: print(urllib.request.urlopen('http://127.0.0.1:8000/health').status)\n"
            "except urllib.error.HTTPError as error: print(error.code)\n"
            "except OSError: print(0)"
        )
        return int(self.kubectl("exec", self.pod()["metadata"]["name"], "--", "python", "-c", ask))

    def request(self) -> bytes:
        """A video, asked for inside the pod's own network; its MP4."""
        ask = (
            "import base64, json, time, urllib.request as u\n"
            "a = 'http://127.0.0.1:8000/v1/videos'\n"
            "h = {'Content-Type': 'application/json'}\n"
            'j = json.load(u.urlopen(u.Request(a, b\'{"prompt": "a lighthouse", "seed": 7}\', h)))\n'
            "while j['status'] in ('queued', 'in_progress'):\n"
            "    time.sleep(0.1); j = json.load(u.urlopen(a + '/' + j['id']))\n"
            "assert j['status'] == 'completed', j\n"
            "print(base64.b64encode(u.urlopen(a + '/' + j['id'] + '/content').read()).decode())"
        )
        return base64.b64decode(self.kubectl("exec", self.pod()["metadata"]["name"], "--", "python", "-c", ask))


@pytest.fixture
def story(installed: Cluster, namespace: str) -> Story:
    return Story(installed, namespace)


def test_ready_only_after_proof_then_restarted_then_deleted(story: Story) -> None:
    story.apply()
    # While it measures: Running, not Ready, gate False, 503.
    until(lambda: story.get("pods")["items"] and story.pod()["status"].get("phase") == "Running", "the pod runs")
    until(lambda: story.health() == 503, "the agent's server answers 503")
    assert story.gate() == "False"
    assert story.condition(f"dd/{NAME}", "Ready")["status"] != "True"

    story.wait(NAME)
    status = story.placement()
    assert story.gate() == "True" and story.health() == 200
    assert status["phase"] == "Ready" and status["validation"]["bitEqual"] is True
    assert status["plan"]["predictedPeakBytes"] == status["validation"]["peakBytes"] == status["ranks"][0]["peakBytes"]
    assert (
        abs(status["plan"]["predictedMilliseconds"] - status["validation"]["milliseconds"])
        <= 0.02 * (status["validation"]["milliseconds"])
    )
    resident, layers = map(int, status["resident"].split("/"))
    assert 0 < resident < layers, "a card of 40 MiB keeps a part"
    first = story.request()
    assert first[4:8] == b"ftyp"

    _the_operator_restarts_and_writes_nothing(story)
    _a_killed_container_closes_the_gate_until_its_new_boot_validates(story)
    assert story.request() == first, "the same seed gives the same video in the next boot"

    story.kubectl("delete", f"dd/{NAME}", "--wait")
    kinds = "rp,deployment,replicaset,pod,service,serviceaccount,rolebinding,pdb,configmap"
    until(lambda: not re.search(NAME, story.kubectl("get", kinds, "-o", "name")), "nothing is left", seconds=90)


def test_a_larger_card_keeps_everything(story: Story) -> None:
    story.apply("tiny-wan-large")
    story.wait("tiny-wan-large")
    resident, layers = map(int, story.placement()["resident"].split("/"))
    assert resident == layers > 0


def test_too_small_a_card_stays_unready_and_says_what_is_short(story: Story) -> None:
    story.apply("tiny-wan-small")
    until(lambda: story.condition("dd/tiny-wan-small", "Stalled").get("status") == "True", "it stalls", seconds=240)
    assert story.gate() == "False" and story.health() == 503
    told = story.kubectl("describe", "dd", "tiny-wan-small")
    assert re.search(r"interval \d+ \(vae decode\) .* \d+ bytes more than the 28 MiB there are", told), told
    assert re.search(r"would fit: .* of device memory", told), told
    assert story.pod()["status"]["containerStatuses"][0]["restartCount"] == 0


def test_a_fault_in_validation_rolls_back_and_is_told(story: Story) -> None:
    story.apply(serving={"env": [{"name": "STOWPLAN_FAULTS", "value": "validate.output"}]})
    until(lambda: story.condition(f"dd/{NAME}", "Degraded").get("status") == "True", "it is degraded", seconds=240)
    story.kubectl("wait", "--for=condition=Ready", "pod", "--all", "--timeout=60s")
    rolled = story.condition("rp", "RolledBack")
    assert (rolled["status"], rolled["reason"]) == ("True", "OutputDiffers")
    dd = story.get(f"dd/{NAME}")["status"]
    assert story.condition(f"dd/{NAME}", "Degraded")["reason"] == "PlacementRolledBack"
    assert dd["lastRollback"]["reason"] == "OutputDiffers" and dd["rollbacks"] == 1
    events = story.get("events")["items"]
    assert any(event["type"] == "Warning" and event["reason"] == "PlacementRolledBack" for event in events)
    ask = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8000/metrics').read().decode())"
    metrics = story.kubectl("exec", story.pod()["metadata"]["name"], "--", "python", "-c", ask)
    assert 'stowplan_rollbacks_total{reason="OutputDiffers"} 1.0' in metrics


def _the_operator_restarts_and_writes_nothing(story: Story) -> None:
    # The story's own last writes (Events come after the status) are over once none was made for a while.
    seen = [_written(story)]

    def quiet() -> bool:
        seen.append(_written(story))
        return len(seen) > QUIET and len(seen[-1]) == len(seen[-QUIET])

    until(quiet, "the operator is quiet")
    before = seen[-1]
    story.cluster.kubectl("-n", chart.NAMESPACE, "rollout", "restart", "deployment/stowplan-operator")
    story.cluster.kubectl("-n", chart.NAMESPACE, "rollout", "status", "deployment/stowplan-operator", "--timeout=120s")
    after = _written(story)
    assert after == before


def _written(story: Story) -> list[str]:
    """Writes of the operator to this namespace, from the API server's own audit log."""
    return [
        json.dumps([entry["verb"], entry["objectRef"]], sort_keys=True)
        for entry in story.cluster.audit()
        if "stowplan-operator" in entry["user"]["username"]
        and entry["objectRef"].get("namespace") == story.namespace
        and entry["verb"] not in ("get", "list", "watch")
    ]


def _a_killed_container_closes_the_gate_until_its_new_boot_validates(story: Story) -> None:
    boot = story.placement()["agent"]["bootId"]
    pod = story.pod()
    _kill(pod["metadata"]["uid"])
    until(lambda: story.gate() == "False", "the gate closes")
    until(lambda: story.condition(f"dd/{NAME}", "Ready")["status"] != "True", "the deployment is not Ready any more")
    until(lambda: story.placement()["agent"]["bootId"] != boot, "the new boot reports", seconds=120)
    name = pod["metadata"]["name"]
    story.kubectl("wait", f"--for=condition={READINESS_GATE}", f"pod/{name}", "--timeout=240s")
    # The gate opened for this boot: its own placement says so, and nothing of the old boot is left in it.
    assert story.condition("rp", "Validated")["status"] == "True"
    assert story.placement()["agent"]["bootId"] != boot
    story.wait(NAME)


def _kill(uid: str) -> None:
    """SIGKILL to the agent of a pod, from outside as the kernel's out-of-memory killer would."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            mine = uid in (process / "cgroup").read_text() and b"stowplan" in (process / "cmdline").read_bytes()
        except OSError:
            continue
        if mine:
            os.kill(int(process.name), signal.SIGKILL)
