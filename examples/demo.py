"""The main job, from nothing to a video: ``make demo`` runs ``up``, ``make demo-down`` runs ``down``.

A real Kubernetes is built and started on this machine (or the one that KUBECONFIG names is used), the chart is
installed, a model is applied, and what a user would type next is typed and shown. Nothing here is special to the demo
but the tiny checkpoints, which have random weights, and the mounts that let pods run this machine's Python.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import yaml
from helm_python import HelmError
from rich.console import Console

from localcluster import chart
from localcluster import cluster as local
from localcluster.client import Cluster
from localcluster.errors import ClusterError
from localcluster.host_python import HostPython
from localcluster.layout import Layout
from tiny_models import write_model

TREE: Final = Path(__file__).resolve().parents[1]
OUTPUT: Final = TREE / ".demo"
MODELS: Final = ("tiny-wan", "tiny-flux", "tiny-wan-two-experts")
DEPLOYMENT: Final = "tiny-wan"
READY_SECONDS: Final = 600
console: Final = Console(highlight=False)


def up() -> None:
    """Everything up to the saved video."""
    began = time.monotonic()
    layout = Layout.from_environment()
    cluster, values = _cluster(layout)
    _step("install the chart")
    chart.install(cluster.kubeconfig, values)
    _type(cluster, "apply", "-f", f"examples/{DEPLOYMENT}.yaml")
    _wait(cluster)
    _type(cluster, "get", "dd,rp,pod", "-o", "wide")
    _show_placement(cluster)
    video = _ask(cluster)
    _next(cluster, video, time.monotonic() - began)


def down() -> None:
    """Remove what `up` made: the release and its objects, the local cluster with its links and mounts, the video."""
    layout = Layout.from_environment()
    own = Cluster.of_user(os.environ, layout)
    if own is not None:
        own.kubectl("delete", "-f", f"{TREE}/examples/{DEPLOYMENT}.yaml", "--ignore-not-found", "--wait")
        chart.uninstall(own.kubeconfig)
    else:
        local.stop(layout)
    shutil.rmtree(OUTPUT, ignore_errors=True)
    shutil.rmtree(_models(layout), ignore_errors=True)
    console.print("removed the demo; the built programs stay in the cache", style="green")


def _cluster(layout: Layout) -> tuple[Cluster, dict[str, Any]]:
    """A cluster, and the chart values with which its nodes can run the operator and the agent."""
    own = Cluster.of_user(os.environ, layout)
    if own is not None:
        given = os.environ.get("STOWPLAN_VALUES")
        if given is None:
            raise ClusterError(
                "KUBECONFIG names your own cluster, whose nodes need images of the operator and the agent: build the "
                "two Dockerfiles, and give chart values that name them by STOWPLAN_VALUES=FILE; or unset KUBECONFIG"
            )
        return own, yaml.safe_load(Path(given).read_text(encoding="utf-8"))
    if (reason := local.obstacle()) is not None:
        raise ClusterError(f"{reason}; set KUBECONFIG to use a cluster that you have")
    for name in MODELS:
        _step(f"write {name}, a tiny checkpoint with random weights")
        with contextlib.redirect_stderr(io.StringIO()):  # progress bars of a second's work
            write_model(name, _models(layout) / name)
    _step("build and start Kubernetes (some minutes the first time, seconds after that)")
    local.start(layout)
    return Cluster.of_layout(layout), _with_models(HostPython.here().chart_values(), _models(layout))


def _models(layout: Layout) -> Path:
    return layout.cache / "models"


def _with_models(values: dict[str, Any], models: Path) -> dict[str, Any]:
    """The values, with the checkpoints mounted at /models in every serving pod."""
    spec = values["agent"]["podTemplate"]["spec"]
    spec["volumes"].append({"name": "models", "hostPath": {"path": str(models), "type": "Directory"}})
    server = spec["containers"][0]
    server["volumeMounts"].append({"name": "models", "mountPath": "/models", "readOnly": True})
    return values


def _wait(cluster: Cluster) -> None:
    """``kubectl wait``, with the pod's phases as they come."""
    command = ["wait", "--for=condition=Ready", f"dd/{DEPLOYMENT}", f"--timeout={READY_SECONDS}s"]
    console.print(f"\n[bold]$ kubectl {' '.join(command)}[/]")
    with _running(cluster, *command) as waiting:
        seen: list[tuple[str, str]] = []
        while waiting.poll() is None:
            for pod, phase in _phases(cluster):
                if (pod, phase) not in seen:
                    seen.append((pod, phase))
                    console.print(f"  {pod}  {phase}", style="dim")
            try:
                waiting.wait(0.5)
            except subprocess.TimeoutExpired:
                continue
        output, error = waiting.communicate()
    console.print(output.strip() or error.strip(), markup=False)
    if waiting.returncode:
        console.print(cluster.kubectl("describe", f"dd/{DEPLOYMENT}"), markup=False)
        raise ClusterError(f"{DEPLOYMENT} did not become Ready within {READY_SECONDS} s; its description is above")


def _phases(cluster: Cluster) -> list[tuple[str, str]]:
    try:
        items = cluster.json("get", "rp")["items"]
    except subprocess.CalledProcessError:
        return []
    return [(item["metadata"]["name"], item.get("status", {}).get("phase", "Pending")) for item in items]


def _show_placement(cluster: Cluster) -> None:
    status = cluster.json("get", "rp")["items"][0]["status"]
    console.print("\n[bold]the placement, and why[/]")
    for reason in status["plan"]["explanations"]:
        console.print(f"  {reason}", markup=False, soft_wrap=True)
    plan, proof, rank = status["plan"], status["validation"], status["ranks"][0]
    console.print(
        f"  predicted {plan['predictedMilliseconds']} ms and {plan['predictedPeakBytes']} bytes; measured "
        f"{proof['milliseconds']} ms and {proof['peakBytes']} bytes of {rank['capacityBytes']}; "
        f"{proof['referenceMilliseconds']} ms with everything streamed; bit-equal: {proof['bitEqual']}",
        soft_wrap=True,
    )


def _ask(cluster: Cluster) -> Path:
    """Ask for a video over the Service, wait for it, save it."""
    console.print('\n[bold]$ curl -X POST .../v1/videos -d \'{"prompt": "a lighthouse", "seed": 7}\'[/]')
    port = cluster.json("get", f"service/{DEPLOYMENT}")["spec"]["ports"][0]["port"]
    with _running(cluster, "port-forward", f"service/{DEPLOYMENT}", f":{port}") as forward:
        assert forward.stdout is not None
        address = f"http://127.0.0.1:{forward.stdout.readline().split(':')[1].split()[0]}/v1/videos"
        job = json.loads(_http(address, {"prompt": "a lighthouse", "seed": 7}))
        while job["status"] in ("queued", "in_progress"):
            time.sleep(0.2)
            job = json.loads(_http(f"{address}/{job['id']}"))
        if job["status"] != "completed":
            raise ClusterError(f"the video failed: {job.get('error')}")
        content = _http(f"{address}/{job['id']}/content")
        forward.terminate()
    OUTPUT.mkdir(exist_ok=True)
    path = OUTPUT / f"{DEPLOYMENT}.mp4"
    path.write_bytes(content)
    console.print(f"  saved {path.relative_to(TREE)}: {len(content)} bytes of MP4 (noise: the weights are random)")
    return path


def _http(address: str, body: dict[str, Any] | None = None) -> bytes:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data, {"Content-Type": "application/json"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=60) as answer:
        return bytes(answer.read())


def _next(cluster: Cluster, video: Path, seconds: float) -> None:
    kubectl = f"{cluster.program} --kubeconfig {cluster.kubeconfig}"
    console.print(f"\n[bold green]done in {seconds:.0f} s[/]. Try next:")
    for line in (
        f"alias k='{kubectl}'",
        "k describe dd tiny-wan                      # the story, as Events",
        "k delete dd --all                           # before each of the next: a pod takes one of 2 CPUs",
        "k apply -f examples/tiny-wan-large.yaml     # a larger card: everything stays",
        "k apply -f examples/tiny-wan-small.yaml     # too small: it says which interval is short, and what would fit",
        "k apply -f examples/tiny-flux.yaml          # an image model with two kinds of layers",
        "make demo-down                              # remove all of it",
    ):
        console.print(f"  {line}", markup=False, soft_wrap=True)


def _type(cluster: Cluster, *arguments: str) -> None:
    console.print(f"\n[bold]$ kubectl {' '.join(arguments)}[/]")
    located = [str(TREE / part) if part.startswith("examples/") else part for part in arguments]
    console.print(cluster.kubectl(*located).rstrip(), markup=False, soft_wrap=True)


@contextmanager
def _running(cluster: Cluster, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    environment = os.environ | {"KUBECONFIG": str(cluster.kubeconfig), "NO_PROXY": "*"}
    process = subprocess.Popen(
        [cluster.program, *arguments], env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def _step(text: str) -> None:
    console.print(f"[bold]>[/] {text}")


if __name__ == "__main__":
    try:
        {"up": up, "down": down}[sys.argv[1] if len(sys.argv) > 1 else "up"]()
    except (ClusterError, HelmError, subprocess.CalledProcessError) as error:
        console.print(f"demo: {error}", style="red", markup=False)
        sys.exit(1)
