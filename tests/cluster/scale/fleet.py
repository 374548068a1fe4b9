"""A fleet on simulated nodes: many DiffusionDeployments, the agents of their pods, and an eye on every gate.

What is real: the API server and all that goes through it, the controllers, the scheduler, the operator. What is played:
kubelets (KWOK) and agents, which report for their pods as real ones do, phase by phase, by server-side apply.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp

from cluster.played import now
from cluster.scale.nodes import pod_placement
from localcluster import waiting
from localcluster.addresses import API_SERVER
from localcluster.layout import Layout
from stowplan_api.contract import LABEL_DEPLOYMENT, READINESS_GATE, Manager
from stowplan_operator.client import Client, connect
from stowplan_operator.kinds import DIFFUSION_DEPLOYMENT, POD, RESIDENCY_PLACEMENT, Json, Kind

AT_ONCE: Final = 16
"""Requests of all agents and users together that are under way at the same time."""
_SELECTED: Final = {POD: LABEL_DEPLOYMENT}
GIB: Final = 1 << 30


@dataclass
class SimulatedPod:
    """One pod as its agent and the fleet's watcher know it."""

    namespace: str
    name: str
    uid: str
    running: bool = False
    gate: str = ""
    """The status of its readiness gate as last seen; empty while it has none."""
    ready: bool = False
    generation: int = 0
    """Of its ResidencyPlacement; 0 while there is none."""
    booted: bool = False
    waits: list[tuple[str, asyncio.Future[float]]] = field(default_factory=list)
    """Gate statuses that somebody waits for; the time at which each was seen is the answer."""


def deployment(name: str, pods: int) -> Json:
    """What a user would write for a real card."""
    shape = {"name": "clip", "width": 832, "height": 480, "frames": 81, "steps": 40}
    return {
        "apiVersion": DIFFUSION_DEPLOYMENT.api_version,
        "kind": DIFFUSION_DEPLOYMENT.kind,
        "metadata": {"name": name},
        "spec": {
            "replicas": pods,
            "model": {"source": "hf://Wan-AI/Wan2.2-T2V-A14B-Diffusers", "dtype": "bfloat16"},
            "workload": {"shapes": [shape]},
            "resources": {"gpus": 1, "cpu": 8, "memory": "96Gi"},
            "podTemplate": {"spec": {**pod_placement(), "terminationGracePeriodSeconds": 0}},
        },
    }


class Fleet:
    """Use as an asynchronous context; watches run from its beginning to its end.

    ``silent`` agents report only when they are told to (`report`).
    """

    def __init__(self, layout: Layout, *, silent: bool = False) -> None:
        self._layout = layout
        self._silent = silent
        self._session: aiohttp.ClientSession
        self._client: Client
        self._limit = asyncio.Semaphore(AT_ONCE)
        self._tasks = asyncio.TaskGroup()
        self._watches: list[asyncio.Task[None]] = []
        self.pods: dict[tuple[str, str], SimulatedPod] = {}
        self._placements: dict[tuple[str, str], Json] = {}
        self.ready: dict[tuple[str, str], bool] = {}
        """Whether each DiffusionDeployment is Ready."""
        self._changed = asyncio.Event()

    async def __aenter__(self) -> Fleet:
        self._client = await connect(str(self._layout.kubeconfig))
        connector = aiohttp.TCPConnector(ssl=waiting.administrator(self._layout))
        self._session = aiohttp.ClientSession(API_SERVER, connector=connector, read_bufsize=1 << 22)
        await self._tasks.__aenter__()
        for kind, see in ((POD, self._pod), (RESIDENCY_PLACEMENT, self._placement), (DIFFUSION_DEPLOYMENT, self._dd)):
            self._watches.append(self._tasks.create_task(self._watch(kind, see)))
        return self

    async def __aexit__(self, *error: Any) -> None:
        for watch in self._watches:
            watch.cancel()
        try:
            # A watch or an agent that failed has cancelled what the context does, and is raised here.
            await self._tasks.__aexit__(*error)
        finally:
            await self._session.close()
            await self._client.close()

    async def add(self, namespace: str, names: Iterable[str], pods: int) -> None:
        """Create deployments as a user would."""
        manifests = [deployment(name, pods) for name in names]
        for manifest in manifests:
            manifest["metadata"]["namespace"] = namespace
        await asyncio.gather(*(self._limited(self._client.apply(one, "user")) for one in manifests))

    async def report(self, pod: SimulatedPod, phase: str, validated: bool, boot: str) -> float:
        """One status of an agent; when it was sent, on the monotonic clock."""
        conditions = [
            {"type": type_, "status": "True" if validated else "False", "reason": reason, "message": ""}
            for type_, reason in (("Calibrated", "Reused"), ("Applied", "Proven"), ("Validated", "Proven"))
        ]
        for condition in conditions:
            condition |= {"observedGeneration": pod.generation, "lastTransitionTime": now()}
        status = {"agent": {"bootId": boot, "startedAt": now(), "version": "simulated"}, "phase": phase}
        manifest = {
            "apiVersion": RESIDENCY_PLACEMENT.api_version,
            "kind": RESIDENCY_PLACEMENT.kind,
            "metadata": {"namespace": pod.namespace, "name": pod.name},
            "status": status | {"observedGeneration": pod.generation, "conditions": conditions} | MEASURED,
        }
        return await self._limited(self._client.apply(manifest, Manager.AGENT, "status"))

    async def seconds_to_gate(self, pod: SimulatedPod, validated: bool) -> float:
        """Seconds from sending a report to seeing the gate say the same."""
        seen: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        pod.waits.append(("True" if validated else "False", seen))
        sent = await self.report(pod, "Ready" if validated else "Warm", validated, uuid.uuid4().hex)
        return await seen - sent

    @property
    def booted(self) -> list[SimulatedPod]:
        """Pods that run and have a ResidencyPlacement, so that their agents can report."""
        return [pod for pod in self.pods.values() if pod.booted]

    async def until(self, probe: Callable[[], bool], what: str = "it is so", seconds: float = 3600) -> None:
        """Wait until it is so; looked at again whenever something was seen to change. Raises TimeoutError."""
        try:
            async with asyncio.timeout(seconds):
                while not probe():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise TimeoutError(f"after {seconds:.0f} s it is still not so that {what}") from None

    def settled(self, deployments: int, pods: int) -> bool:
        """Whether so many deployments are Ready, and every pod is Ready behind an open gate."""
        open_ = sum(pod.gate == "True" and pod.ready for pod in self.pods.values())
        return sum(self.ready.values()) == deployments and open_ == len(self.pods) == pods

    async def _boot(self, pod: SimulatedPod) -> None:
        """The reports of one start that reuses what an earlier one measured."""
        boot = uuid.uuid4().hex
        for phase in ("Load", "Revalidate"):
            await self.report(pod, phase, False, boot)
        await self.report(pod, "Ready", True, boot)

    def _pod(self, type_: str, raw: Json) -> None:
        metadata, status = raw["metadata"], raw.get("status") or {}
        place = (metadata["namespace"], metadata["name"])
        if type_ == "DELETED":
            self.pods.pop(place, None)
            return
        pod = self.pods.setdefault(place, SimulatedPod(*place, metadata["uid"]))
        conditions = {one["type"]: one["status"] for one in status.get("conditions") or ()}
        pod.running = bool(status.get("containerStatuses"))
        pod.ready, pod.gate = conditions.get("Ready") == "True", conditions.get(READINESS_GATE, "")
        for wanted, seen in pod.waits:
            if wanted == pod.gate and not seen.done():
                seen.set_result(time.monotonic())
        pod.waits = [wait for wait in pod.waits if not wait[1].done()]
        self._start(place)

    def _placement(self, type_: str, raw: Json) -> None:
        place = (raw["metadata"]["namespace"], raw["metadata"]["name"])
        if type_ == "DELETED":
            self._placements.pop(place, None)
        else:
            self._placements[place] = raw["spec"]
            self._start(place)

    def _start(self, place: tuple[str, str]) -> None:
        pod, spec = self.pods.get(place), self._placements.get(place)
        if pod is not None and spec is not None and spec["pod"]["uid"] == pod.uid and pod.running and not pod.booted:
            pod.booted, pod.generation = True, spec["generation"]
            if not self._silent:
                self._tasks.create_task(self._boot(pod))

    def _dd(self, type_: str, raw: Json) -> None:
        place = (raw["metadata"]["namespace"], raw["metadata"]["name"])
        if type_ == "DELETED":
            self.ready.pop(place, None)
            return
        conditions = (raw.get("status") or {}).get("conditions") or ()
        self.ready[place] = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    async def _limited(self, work: Coroutine[Any, Any, Json]) -> float:
        async with self._limit:
            began = time.monotonic()
            await work
            return began

    async def _watch(self, kind: Kind, see: Callable[[str, Json], None]) -> None:
        async for type_, raw in self._events(kind):
            see(type_, raw)
            self._changed.set()

    async def _events(self, kind: Kind) -> AsyncIterator[tuple[str, Json]]:
        """All that is there, and then all that changes. A watch that the server ends goes on where it was."""
        # From the server's cache: etcd 3.4 cannot do without a version.
        query = {"watch": "true", "resourceVersion": "0", "labelSelector": _SELECTED.get(kind, "")}
        timeout = aiohttp.ClientTimeout(total=None)
        while True:
            async with self._session.get(kind.path(), params=query, timeout=timeout) as answer:
                answer.raise_for_status()
                async for line in answer.content:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        raise RuntimeError(f"the watch of {kind.plural} ended: {event['object'].get('message')}")
                    query["resourceVersion"] = event["object"]["metadata"]["resourceVersion"]
                    yield event["type"], event["object"]


MEASURED: Final[Json] = {
    "resident": "14/40",
    "ranks": [
        {
            "rank": 0,
            "device": "Simulated 80 GiB",
            "capacityBytes": 80 * GIB,
            "reserveBytes": GIB,
            "peakBytes": 70 * GIB,
            "linkBytesPerSecond": 50_000_000_000,
            "pinnedBytes": 20 * GIB,
        }
    ],
    "components": [
        {
            "name": name,
            "mode": "Layerwise",
            "residentLayers": 14,
            "layers": 40,
            "deviceBytes": 10 * GIB,
            "pinnedBytes": 5 * GIB,
            "lifetime": "Permanent",
        }
        for name in ("text_encoder", "transformer", "transformer_2", "vae")
    ],
    "plan": {
        "id": "0" * 16,
        "predictedMilliseconds": 61_000,
        "predictedPeakBytes": 70 * GIB,
        "explanations": [f"{name}: 14 of 40 layers, the most that fits" for name in ("transformer", "transformer_2")],
    },
    "validation": {
        "milliseconds": 61_000,
        "referenceMilliseconds": 61_000,
        "peakBytes": 70 * GIB,
        "bitEqual": True,
    },
}
"""What a status holds beside what changes, in the size of a real one."""
