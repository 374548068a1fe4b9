"""What one event costs the operator before anything is written, and what one pod costs it in memory, by size of fleet.

    python benchmarks/operator_decisions.py [--pods 100 500 1000 5000] > results/...json

Prints one JSON document. No cluster: deployments of five pods each are put into the operator's store as the API server
would send them, validated and settled. Each figure is a ratio against its bar (below 1 is within it):

- ``event``: seconds from a pod's changed status to a decision (store, snapshot, decide and render), median and 99th
  percentile, against 20 ms: a fiftieth of the second that an event may take to its gate on a busy API server.
- ``flat``: the median of each size against that of the smallest: a cost that grew with the number of objects shows.
- ``restart``: seconds to decide every deployment for the first time, against 30 s: what a restart may take in all.
- ``memory``: bytes that the store holds, against 200 MiB for everything.
- ``silent``: decisions that would write something though nothing changed. Must be 0.

Seconds are those of this process alone: the same where the machine is shared.

(It is not called operator.py: a script's folder comes first on Python's path, and that name is the standard library's.)
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import platform
import random
import statistics
import sys
import time
import tracemalloc
from datetime import UTC, datetime
from typing import Any

from stowplan_api.contract import LABEL_DEPLOYMENT, LABEL_TEMPLATE, READINESS_GATE, Manager
from stowplan_operator.decide import Settled, decide
from stowplan_operator.decide.rollout import template_of
from stowplan_operator.kinds import DEPLOYMENT, DIFFUSION_DEPLOYMENT, POD, RESIDENCY_PLACEMENT, Json, kind_of
from stowplan_operator.observed import Key, Observed
from stowplan_operator.render import children, read_spec, residency_placement
from stowplan_operator.settings import Settings

PODS_EACH = 5
SETTINGS = Settings(agent_image="stowplan/agent:0.1.0")
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
BEFORE = "2026-01-01T11:00:00Z"
BAR_EVENT, BAR_RESTART, BAR_MEMORY = 0.020, 30.0, 200 << 20
EVENTS = 2000


def deployment(number: int) -> Json:
    """A user's DiffusionDeployment."""
    return {
        "apiVersion": DIFFUSION_DEPLOYMENT.api_version,
        "kind": DIFFUSION_DEPLOYMENT.kind,
        "metadata": meta(f"wan-{number}", f"dd-{number}") | {"generation": 1},
        "spec": {
            "replicas": PODS_EACH,
            "model": {"source": "hf://Wan-AI/Wan2.2-T2V-A14B-Diffusers", "dtype": "bfloat16"},
            "workload": {"shapes": [{"name": "clip", "width": 832, "height": 480, "frames": 81, "steps": 40}]},
            "resources": {"gpus": 1, "cpu": 8, "memory": "96Gi"},
        },
    }


def meta(name: str, uid: str) -> Json:
    """Metadata as it is sent, with the field list of a manager that is not ours."""
    fields = {"f:status": {f"f:field-{number}": {} for number in range(40)}}
    return {
        "name": name,
        "namespace": "studio",
        "uid": uid,
        "resourceVersion": "1",
        "creationTimestamp": BEFORE,
        "managedFields": [{"manager": "kubelet", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": fields}],
    }


def pod(dd: Json, template: str, number: int) -> Json:
    """A validated pod that serves, as the API server sends it."""
    name = f"{dd['metadata']['name']}-7d4b9c-{number}"
    types = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled", READINESS_GATE)
    container = {
        "name": "server",
        "image": SETTINGS.agent_image,
        "imageID": "sha256:" + "0" * 64,
        "containerID": "containerd://" + "0" * 64,
        "restartCount": 0,
        "started": True,
        "ready": True,
        "state": {"running": {"startedAt": BEFORE}},
        "lastState": {},
    }
    metadata = meta(name, f"{dd['metadata']['uid']}-pod-{number}")
    metadata["labels"] = {LABEL_DEPLOYMENT: dd["metadata"]["name"], LABEL_TEMPLATE: template, "pod-template-hash": "x"}
    owner = f"{dd['metadata']['name']}-7d4b9c"
    metadata["ownerReferences"] = [{"kind": "ReplicaSet", "name": owner, "uid": "rs", "controller": True}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [{"name": "server", "env": [{"name": f"V{n}", "value": "x"} for n in range(12)]}]},
        "status": {
            "phase": "Running",
            "podIP": "10.0.0.1",
            "conditions": [{"type": one, "status": "True", "lastTransitionTime": BEFORE} for one in types],
            "containerStatuses": [container],
        },
    }


def report(dd: Json, found: Json) -> Json:
    """The ResidencyPlacement of a pod that has measured, planned and proven."""
    name, uid = found["metadata"]["name"], found["metadata"]["uid"]
    spec = read_spec(dd)
    made = residency_placement(dd["metadata"]["name"], spec, 1, "studio", name, uid)
    made["metadata"] |= meta(name, f"rp-{uid}")
    phases = ("Inventory", "Load", "Warm", "Probe", "WarmAgain", "Solve", "Apply", "Validate")
    types = ("Calibrated", "Applied", "Validated", "Ready")
    made["status"] = {
        "agent": {"bootId": "0" * 32, "startedAt": BEFORE, "version": "0.1.0"},
        "phase": "Ready",
        "phases": [{"name": one, "startedAt": BEFORE, "milliseconds": 1000} for one in phases],
        "conditions": [
            {"type": one, "status": "True", "reason": "Proven", "observedGeneration": 1, "lastTransitionTime": BEFORE}
            for one in types
        ],
        "components": [
            {
                "name": one,
                "mode": "Layerwise",
                "residentLayers": 30,
                "layers": 40,
                "deviceBytes": 1 << 33,
                "pinnedBytes": 1 << 32,
                "lifetime": "Permanent",
            }
            for one in ("text_encoder", "transformer", "transformer_2", "vae")
        ],
        "validation": {"milliseconds": 61000, "referenceMilliseconds": 61000, "peakBytes": 1 << 36, "bitEqual": True},
    }
    return made


def parsed(raw: Json) -> Json:
    """As it arrives: with strings of its own, keys included."""
    arrived: Json = json.loads(json.dumps(raw))
    return arrived


def fleet(pods: int) -> Observed:
    """A store with so many pods, settled: every decision has been written."""
    store = Observed()
    for number in range(pods // PODS_EACH):
        dd = deployment(number)
        wanted = children(dd, read_spec(dd), SETTINGS)
        template = template_of(wanted[-1])
        for manifest in wanted:
            there = copy.deepcopy(manifest)
            name = manifest["metadata"]["name"]
            there["metadata"] |= meta(name, f"{manifest['kind']}-{number}") | {"generation": 1}
            applied = {"manager": Manager.WORKLOAD.value, "operation": "Apply", "fieldsV1": {}}
            there["metadata"]["managedFields"].append(applied)
            if manifest["kind"] == DEPLOYMENT.kind:
                there["status"] = {"observedGeneration": 1, "replicas": PODS_EACH, "updatedReplicas": PODS_EACH}
            store.put(kind_of(manifest), parsed(there))
        for each in range(PODS_EACH):
            made = pod(dd, template, each)
            store.put(POD, parsed(made))
            store.put(RESIDENCY_PLACEMENT, parsed(report(dd, made)))
        store.put(DIFFUSION_DEPLOYMENT, parsed(dd))
        settle(store, dd)
    return store


def settle(store: Observed, dd: Json) -> None:
    """Write what is decided into the store until nothing is left to write."""
    key = Key("studio", dd["metadata"]["name"])
    for version in range(2, 6):
        decision = decide(store.snapshot(key), NOW, SETTINGS)
        for gate in decision.gates:
            found = next(raw for raw in store.snapshot(key).pods if raw["metadata"]["uid"] == gate.patch.pod.uid)
            written = copy.deepcopy(found)
            kept = [entry for entry in written["status"]["conditions"] if entry["type"] != READINESS_GATE]
            written["status"]["conditions"] = kept + gate.patch.body["status"]["conditions"]
            written["metadata"]["resourceVersion"] = str(version)
            store.put(POD, parsed(written))
        if decision.status is None:
            return
        dd = dd | {"status": decision.status["status"]}
        dd["metadata"] = dd["metadata"] | {"resourceVersion": str(version)}
        store.put(DIFFUSION_DEPLOYMENT, parsed(dd))


def event_seconds(store: Observed, known: Settled, dice: random.Random) -> list[float]:
    """Each of many events alone: a pod's status changes without meaning, and its deployment is decided anew."""
    keys = sorted(store.deployments())
    found = []
    for version in range(100, 100 + EVENTS):
        key = dice.choice(keys)
        raw = copy.deepcopy(dice.choice(store.snapshot(key).pods))
        raw["metadata"]["resourceVersion"] = str(version)
        began = time.process_time()
        heard = store.put(POD, raw)
        assert heard == key
        decide(store.snapshot(key), NOW, SETTINGS, settled=known)
        found.append(time.process_time() - began)
    return found


def measured(pods: int) -> dict[str, Any]:
    """Every figure of one size."""
    tracemalloc.start()
    store = fleet(pods)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    gc.collect()
    gc.freeze()  # As the operator does after its first lists.
    known = Settled()
    began = time.process_time()
    writes = sum(bool(decide(store.snapshot(key), NOW, SETTINGS, settled=known)) for key in store.deployments())
    restart = time.process_time() - began
    seconds = event_seconds(store, known, random.Random(0))
    began = time.process_time()
    writes += sum(bool(decide(store.snapshot(key), NOW, SETTINGS, settled=known)) for key in store.deployments())
    resync = time.process_time() - began
    gc.unfreeze()
    median, slow = statistics.median(seconds), statistics.quantiles(seconds, n=100)[98]
    return {
        "pods": pods,
        "deployments": pods // PODS_EACH,
        "event": {"median": median / BAR_EVENT, "p99": slow / BAR_EVENT},
        "restart": restart / BAR_RESTART,
        "memory": held / BAR_MEMORY,
        "silent": writes,
        "seconds": {"median": median, "p99": slow, "restart": restart, "resync": resync},
        "bytes": {"store": held, "a_pod": held // pods},
    }


def main() -> None:
    """Measure every size and print the document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, nargs="+", default=[100, 500, 1000, 5000])
    sizes = [measured(pods) for pods in parser.parse_args().pods]
    first = sizes[0]["seconds"]["median"]
    for size in sizes:
        size["flat"] = size["seconds"]["median"] / first
    machine = {"python": platform.python_version(), "processor": platform.machine()}
    json.dump({"benchmark": "operator_decisions", "machine": machine, "sizes": sizes}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
