"""A small model of one pod name: process, kubelet, agent, API server and operators, as states and steps between them.

The operators judge with the product's own gate. Everybody else is as unhelpful as they may be: processes die at any
moment, writes are delayed, lost, or arrive after their sender is dead, watches lag, pods are replaced under their name,
operators come and go. Times are numbers of boots, so a later boot has a later start.

A version of the pod is modelled by what it says, so a pod that came back to the same words counts as unchanged: the
model allows more than the API server does.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache

from gate_world import Judge, Operator, Pod, Report, Rules, World, Write

from stowplan_api.conditions import Condition
from stowplan_api.residency_placement import Agent, ResidencyPlacementStatus
from stowplan_operator.decide.gate import gate_patch
from stowplan_operator.placement import PlacementView
from stowplan_operator.pod import ContainerView, GateCondition, PodView

_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


def pods_boots(world: World) -> frozenset[int]:
    """Boots that are as new as what the kubelet reported, and really validated."""
    return frozenset(boot for boot in world.proven if boot >= world.pod.boot > 0)


def steps(world: World, rules: Rules) -> Iterator[tuple[str, World]]:
    """Everything that may happen next."""
    yield from _machine(world, rules)
    yield from _agent(world, rules)
    for number, operator in enumerate(world.operators):
        others = world.operators
        for name, after, changed in _operator(world, operator, rules):
            yield f"{name} {number}", after._replace(operators=(*others[:number], changed, *others[number + 1 :]))


def _machine(world: World, rules: Rules) -> Iterator[tuple[str, World]]:
    pod, boot = world.pod, world.boot
    if boot:
        yield "the process dies", world._replace(boot=0)
    elif world.born < rules.boots:
        yield "a process starts", world._replace(boot=world.born + 1, born=world.born + 1)
    probe = boot in world.proven if rules.honest_probe else boot > 0
    yield "the kubelet reports", world._replace(pod=pod._replace(boot=boot, probe=probe))
    if pod.uid < rules.pods:
        # The old process dies with its pod, and nothing that it proved is of the new one.
        yield "the pod is replaced", world._replace(pod=Pod(pod.uid + 1), boot=0, proven=frozenset())
    if world.report is not None and world.report.uid != pod.uid:
        yield "the report of an earlier pod is collected", world._replace(report=None)
        if world.born < rules.boots and not rules.other_generation:
            # Deleted by force from a node that is cut off: its container starts anew there, and its agent reports.
            orphan = Report(world.report.uid, world.born + 1, True)
            yield "an orphan reports", world._replace(report=orphan, born=world.born + 1)


def _agent(world: World, rules: Rules) -> Iterator[tuple[str, World]]:
    boot, report = world.boot, world.report
    if boot and boot not in world.proven:
        yield "the process validates", world._replace(proven=world.proven | {boot})
    if boot and report is not None and report.uid == world.pod.uid:
        said = report._replace(boot=boot, validated=boot in world.proven, other_generation=rules.other_generation)
        yield "the agent's status arrives", world._replace(report=said)
        if rules.ghosts:
            yield "the agent's status is under way", world._replace(ghost=said)
    if world.ghost is not None:
        yield "a status is lost", world._replace(ghost=None)
        if report is not None and report.uid == world.ghost.uid:
            yield "a late status arrives", world._replace(report=world.ghost, ghost=None)


def _operator(world: World, one: Operator, rules: Rules) -> Iterator[tuple[str, World, Operator]]:
    if one.write is not None:
        yield "a gate's write is lost by", world, one._replace(write=None)
        yield "a gate's write arrives of", _landed(world, one.write, rules), one._replace(write=None)
    if not one.up:
        yield "lists everything:", world, Operator(True, world.pod, world.report, one.write)
        return
    yield "is killed:", world, Operator(up=False, write=one.write)
    yield "hears of the pod:", world, one._replace(pod=world.pod)
    yield "hears of the report:", world, one._replace(report=world.report)
    if one.pod is None:
        return
    if world.report is None and (one.report is None or one.report.uid != one.pod.uid):
        yield "creates a report:", world._replace(report=Report(one.pod.uid)), one
    if one.write is None and (opens := decided(one.pod, one.report, rules.judge)) is not None:
        yield "decides:", world, one._replace(write=Write(one.pod, opens))


def _landed(world: World, write: Write, rules: Rules) -> World:
    """The API server's answer to a write: uid and, for an opening, the version are preconditions."""
    stale = write.open and rules.guarded and write.judged != world.pod
    if write.judged.uid != world.pod.uid or stale:
        return world
    return world._replace(pod=world.pod._replace(gate=write.open))


@cache
def decided(pod: Pod, report: Report | None, by: Judge) -> bool | None:
    """What the operator would write to the gate of this pod; None when nothing."""
    view = _pod_view(pod)
    gate = by(view, None if report is None else _report_view(report))
    patch = gate_patch(view, gate, _EPOCH)
    # Reasons and messages change as well; only a flip matters here.
    return None if patch is None or pod.gate is gate.open else gate.open


def _pod_view(pod: Pod) -> PodView:
    started = _EPOCH + timedelta(minutes=pod.boot) if pod.boot else None
    server = ContainerView("server", started, max(0, pod.boot - 1), "", "", "", 0, "")
    gate = None if pod.gate is None else GateCondition(str(pod.gate), "", "", "")
    return PodView(
        name="wan-0",
        namespace="studio",
        uid=f"{pod.uid}",
        resource_version="1",
        template="t",
        controller="ReplicaSet/wan-0",
        phase="Running",
        reason="",
        message="",
        terminating=False,
        ready=pod.ready,
        ip="",
        unschedulable="",
        gate=gate,
        containers=(server,),
    )


def _report_view(report: Report) -> PlacementView:
    started = (_EPOCH + timedelta(minutes=report.boot)).isoformat()
    validated = Condition(
        type="Validated",
        status="True" if report.validated else "False",
        reason="Proven",
        observed_generation=2 if report.other_generation else 1,
        last_transition_time=started,
    )
    status = ResidencyPlacementStatus()
    if report.boot:
        agent = Agent(boot_id=f"{report.boot}", started_at=started, version="1")
        status = ResidencyPlacementStatus(agent=agent, conditions=(validated,))
    return PlacementView("wan-0", "rp", f"{report.uid}", 1, False, status)
