"""How far the cluster is on its way to this generation: the pods, judged, and the numbers that follow."""

from __future__ import annotations

from dataclasses import dataclass

from stowplan_api.contract import LABEL_TEMPLATE
from stowplan_operator.decide.gate import Gate, judge
from stowplan_operator.kinds import DEPLOYMENT, Json
from stowplan_operator.observed import Snapshot
from stowplan_operator.placement import PlacementView
from stowplan_operator.placement import view as view_placement
from stowplan_operator.pod import PodView
from stowplan_operator.pod import view as view_pod


@dataclass(frozen=True)
class JudgedPod:
    """One pod with its placement, what its gate should say, and whether it is of this generation's template."""

    pod: PodView
    placement: PlacementView | None
    """Only when it speaks of this pod's uid."""
    gate: Gate
    current: bool

    @property
    def serves(self) -> bool:
        """Whether requests reach it: Ready, and validated as of now and not as of the kubelet's last look."""
        return self.pod.ready and self.gate.open


@dataclass(frozen=True)
class Rollout:
    """The state of one DiffusionDeployment's pods against what this generation wants."""

    desired: int
    pods: tuple[JudgedPod, ...]
    """All of them by name, those that are ending or over included."""
    rendered: bool
    """Whether the Deployment is what this generation renders (template, replicas)."""
    settled: bool
    """Whether the Deployment's controller has seen it and left no pod of an older template."""
    failed_create: str
    """Why the Deployment's controller cannot create pods (quota, admission); empty when it can."""
    past_deadline: bool

    @property
    def live(self) -> tuple[JudgedPod, ...]:
        """Pods that count as replicas."""
        return tuple(judged for judged in self.pods if judged.pod.live)

    @property
    def current(self) -> tuple[JudgedPod, ...]:
        """Replicas made from this generation's template."""
        return tuple(judged for judged in self.live if judged.current)

    @property
    def validated(self) -> int:
        """Replicas whose gate is open, of any template."""
        return sum(judged.gate.open for judged in self.live)

    @property
    def serving(self) -> int:
        """Replicas that requests reach, of any template."""
        return sum(judged.serves for judged in self.live)

    @property
    def complete(self) -> bool:
        """This generation is fully rolled out: as many pods as wanted, all of its template, validated and Ready."""
        return (
            self.rendered
            and self.settled
            and len(self.live) == len(self.current) == self.desired
            and all(judged.serves for judged in self.current)
        )


def judged_pods(snapshot: Snapshot, template: str) -> tuple[JudgedPod, ...]:
    """The pods that the Deployment made. A pod that merely carries the label is not ours to judge."""
    prefix = f"ReplicaSet/{snapshot.key.name}-"
    placements = {name: view_placement(raw) for name, raw in snapshot.placements.items()}
    judged = []
    for raw in snapshot.pods:
        pod = view_pod(raw)
        if not pod.controller.startswith(prefix):
            continue
        placement = placements.get(pod.name)
        if placement is not None and placement.pod_uid != pod.uid:
            placement = None
        judged.append(
            JudgedPod(pod, placement, judge(pod, placement), current=bool(template) and pod.template == template)
        )
    return tuple(judged)


def rollout(snapshot: Snapshot, template: str, desired: int) -> Rollout:
    """Compare what was observed with the pod template that this generation renders, by its hash; empty for none."""
    existing = snapshot.child(DEPLOYMENT, snapshot.key.name)
    status = (existing or {}).get("status") or {}
    conditions = {condition["type"]: condition for condition in status.get("conditions") or ()}
    failure = conditions.get("ReplicaFailure", {})
    return Rollout(
        desired=desired,
        pods=judged_pods(snapshot, template),
        rendered=bool(template)
        and existing is not None
        and template_of(existing) == template
        and existing["spec"].get("replicas") == desired,
        settled=existing is not None
        and status.get("observedGeneration", 0) >= existing["metadata"]["generation"]
        and status.get("updatedReplicas", 0) == status.get("replicas", 0) == desired,
        failed_create=failure.get("message", "") if failure.get("status") == "True" else "",
        past_deadline=conditions.get("Progressing", {}).get("reason") == "ProgressDeadlineExceeded",
    )


def template_of(deployment: Json) -> str:
    """The hash of a Deployment's pod template, from the label that rendering put there."""
    labels: dict[str, str] = deployment["spec"]["template"]["metadata"].get("labels") or {}
    return labels.get(LABEL_TEMPLATE, "")
