"""A rollout, watched from where traffic comes: the Service's endpoints, each of their states, from the API server."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cluster.played import Operator, Studio, deployment, until

SURGE = {"strategy": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}


class Traffic:
    """Which pods took requests, in the order of what the endpoints said."""

    def __init__(self) -> None:
        self.seen: list[frozenset[str]] = []

    def slice(self, raw: dict[str, Any]) -> None:
        ready = (one for one in raw.get("endpoints") or () if one.get("conditions", {}).get("ready"))
        self.seen.append(frozenset(one["targetRef"]["name"] for one in ready))


@contextmanager
def watched(studio: Studio) -> Iterator[Traffic]:
    """Every version of the one EndpointSlice of the Service, from now on."""
    selector = "kubernetes.io/service-name=tiny"
    command = [studio.cluster.program, "-n", studio.namespace, "get", "endpointslices", "-l", selector]
    command += ["--watch", "--output-watch-events=false", "-o", "jsonpath={@}{'\\n'}"]
    environment = os.environ | {"KUBECONFIG": str(studio.cluster.kubeconfig), "NO_PROXY": "*"}
    traffic = Traffic()
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = iter(process.stdout)
        reading = threading.Thread(target=lambda: [traffic.slice(json.loads(line)) for line in lines])
        reading.start()
        try:
            until(lambda: traffic.seen, "the endpoints are watched")
            yield traffic
        finally:
            process.terminate()
            reading.join()


def changed(value: str, **server: Any) -> dict[str, Any]:
    made = deployment(rollout=SURGE)
    made["spec"]["serving"]["env"] = [{"name": "A", "value": value}]
    made["spec"]["podTemplate"]["spec"]["containers"][0] |= server
    return made


def test_with_surge_one_always_serves_and_none_that_is_not_validated(studio: Studio, operator: Operator) -> None:
    studio.apply(changed("1"))
    first = studio.running_pod()
    studio.agent_says(first, "True")
    studio.kubectl("wait", "--for=condition=Ready", "dd/tiny", "--timeout=60s")
    with watched(studio) as traffic:
        # A generation that cannot start: the pod that serves stays, and serves.
        studio.apply(changed("2", command=["sh", "-c", "exit 3"]))
        studio.wait("dd/tiny", '.status.conditions[?(@.type=="Ready")].reason', "PodFailed")
        assert first in {pod["metadata"]["name"] for pod in studio.pods()}
        assert studio.condition("dd/tiny", "Available")["status"] == "True"

        # One that can: its pod runs and is not validated, so it gets nothing; then it is, and takes over.
        studio.apply(changed("3"))
        second = _new_pod(studio, first, generation=3)
        assert studio.condition(f"pod/{first}", "Ready")["status"] == "True"
        assert traffic.seen[-1] == {first}
        studio.agent_says(second, "True")
        studio.kubectl("wait", "--for=condition=Ready", "dd/tiny", "--timeout=60s")
        studio.kubectl("wait", "--for=delete", f"pod/{first}", "--timeout=60s")
        until(lambda: traffic.seen[-1] == {second}, "the endpoints are the second pod's")
    assert all(traffic.seen), "there was a moment when none served"
    assert set().union(*traffic.seen) == {first, second}


def _new_pod(studio: Studio, other: str, generation: int) -> str:
    """The running pod of a generation, once it is the only one beside the other."""

    def found() -> list[str]:
        placements = studio.cluster.json("-n", studio.namespace, "get", "rp")["items"]
        of_it = {rp["metadata"]["name"] for rp in placements if rp["spec"]["generation"] == generation}
        return [name for pod in studio.pods() if (name := pod["metadata"]["name"]) in of_it and name != other]

    until(found, f"a pod of generation {generation} is there", seconds=90)
    (name,) = found()
    studio.wait(f"pod/{name}", ".status.containerStatuses[0].started", "true")
    return name
