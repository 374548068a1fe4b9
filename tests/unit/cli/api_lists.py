"""Objects as an API server lists them, and one that does: it answers lists over HTTP and takes nothing else."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

GIB = 1 << 30
GATE = "stowplan.dev/placement-validated"
CRDS = "/apis/stowplan.dev/v1alpha1"


def conditions(**states: tuple[str, str, str]) -> list[dict[str, str]]:
    return [
        {"type": type_, "status": status, "reason": reason, "message": message,
         "lastTransitionTime": "2026-11-30T12:00:00Z"}
        for type_, (status, reason, message) in states.items()
    ]  # fmt: skip


def deployment(name: str, *, ready: tuple[str, str, str], validated: int, **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "studio", "name": name},
        "spec": {"replicas": 2, "model": {"source": f"hf://org/{name}"}},
        "status": {"validatedReplicas": validated, "conditions": conditions(Ready=ready), **status},
    }


def pod(name: str, of: str, gate: str | None = None, **status: Any) -> dict[str, Any]:
    found = [] if gate is None else [{"type": GATE, "status": gate}]
    return {
        "metadata": {"namespace": "studio", "name": name, "labels": {"stowplan.dev/deployment": of}},
        "status": {"phase": "Running", "conditions": found, **status},
    }


def placement(name: str, phase: str, **status: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": "studio", "name": name}, "status": {"phase": phase, **status}}


SERVING = {
    "phases": [{"name": "Inventory", "startedAt": "2026-11-30T11:58:00Z", "milliseconds": 400}],
    "ranks": [{"rank": 0, "device": "H200", "capacityBytes": 40 * GIB, "reserveBytes": 2 * GIB, "peakBytes": 30 * GIB,
               "linkBytesPerSecond": 55_000_000_000, "pinnedBytes": 8 * GIB}],
    "components": [{"name": name, "mode": mode, "residentLayers": resident, "layers": layers, "deviceBytes": held * GIB,
                    "pinnedBytes": 0, "lifetime": "Permanent"}
                   for name, mode, resident, layers, held in (("text_encoder", "Offload", 0, 24, 0),
                                                              ("transformer", "Layerwise", 30, 40, 20),
                                                              ("vae", "Resident", 0, 0, 4))],
    "plan": {"id": "p1", "predictedMilliseconds": 14_000, "predictedPeakBytes": 30 * GIB,
             "explanations": ["transformer: Layerwise: 30 of 40; device memory: 31 are 200 MiB short"]},
    "validation": {"milliseconds": 14_100, "referenceMilliseconds": 20_000, "peakBytes": 30 * GIB, "bitEqual": True},
    "conditions": conditions(Validated=("True", "Proven", "bit-equal; 14.1 s (14 s predicted)"),
                             Ready=("True", "Serving", "requests are served")),
}  # fmt: skip
TAKEN_BACK = {"time": "2026-11-30T12:00:00Z", "reason": "TooSlow", "message": "9 % slower", "from": "vae Resident",
              "to": "vae Offload", "measured": "peak 30 GiB"}  # fmt: skip
WAITING = {"containerStatuses": [{
    "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s restarting"}},
    "lastState": {"terminated": {"reason": "OOMKilled", "exitCode": 137}},
}]}  # fmt: skip
UNSCHEDULED = {"phase": "Pending", "conditions": [
    {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."}
]}  # fmt: skip
DEPLOYMENTS = [
    deployment("wan22", ready=("True", "RolledOut", "all is well"), validated=2, requestMilliseconds=14_100),
    deployment("flux", ready=("False", "PodFailed", "a container was killed for memory"), validated=0, rollbacks=1),
]
PODS = [
    pod("wan22-a", "wan22", "True"),
    pod("wan22-b", "wan22", "False"),
    pod("flux-a", "flux", "False", **WAITING),
    pod("flux-b", "flux", None, **UNSCHEDULED),
    pod("flux-c", "flux", "True"),
]
PLACEMENTS = [
    placement("wan22-a", "Ready", **SERVING),
    placement("wan22-b", "Probe", phases=[{"name": "Probe", "startedAt": "2026-11-30T11:59:30Z"}]),
    placement("flux-c", "RolledBack", **{**SERVING, "rollbacks": [TAKEN_BACK], "conditions": conditions(
        RolledBack=("True", "TooSlow", "9 % slower"), Ready=("True", "Serving", ""))}),
]  # fmt: skip


@contextmanager
def api_server(folder: Path, answers: Mapping[str, tuple[int, Any]] | None = None) -> Iterator[Path]:
    """A server of the lists above, or of ``answers`` where they say otherwise; yields a kubeconfig of it."""
    lists = {"diffusiondeployments": DEPLOYMENTS, "residencyplacements": PLACEMENTS, "pods": PODS}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            plural = urlsplit(self.path).path.rpartition("/")[2]
            status, body = (answers or {}).get(plural, (200, {"kind": "List", "items": lists[plural]}))
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(kubeconfig(f"http://127.0.0.1:{server.server_port}")))
    yield path
    server.shutdown()
    thread.join()
    server.server_close()


def kubeconfig(address: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"server": address}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "studio"}}],
    }
