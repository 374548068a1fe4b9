"""One DiffusionDeployment on a cluster where both parts are the product: what a user does with it and sees of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import yaml

from cluster.played import until
from localcluster.client import Cluster
from stowplan_api.contract import READINESS_GATE

ROOT = Path(__file__).parents[2]
NAME = "tiny-wan"


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

    def client(self) -> httpx.Client:
        """Speaks to the pod's server at its own address, as the kubelet of this node does."""
        return httpx.Client(base_url=f"http://{self.pod()['status']['podIP']}:8000", timeout=120, trust_env=False)

    def health(self) -> int:
        """The status of /health; 0 before there is a server that listens."""
        try:
            with self.client() as client:
                return client.get("/health").status_code
        except (LookupError, httpx.TransportError):
            return 0

    def metrics(self) -> str:
        with self.client() as client:
            return client.get("/metrics").text

    def request(self) -> bytes:
        """A video; its MP4."""
        with self.client() as client:
            job = client.post("/v1/videos", json={"prompt": "a lighthouse", "seed": 7}).json()
            at = f"/v1/videos/{job['id']}"
            ended = ("completed", "failed", "cancelled")
            until(lambda: client.get(at).json()["status"] in ended, "the video ends", seconds=240)
            assert (found := client.get(at).json())["status"] == "completed", found
            return client.get(f"{at}/content").content
