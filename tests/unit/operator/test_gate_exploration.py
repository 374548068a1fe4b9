"""Every interleaving, to a bound, of process, kubelet, agent, watches, operators and lost writes (see `gate_model`).

Two layers keep an unvalidated pod from being Ready, and each is proven without the other: with an honest probe whatever
the gate says, and with a probe that lies by the gate alone. Where a clause of the judge is taken away, a violation must
be found, or this would prove nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace

import pytest
from gate_model import decided, pods_boots, steps
from gate_world import Judge, Operator, Report, Rules, World

from stowplan_operator.decide.gate import Gate, judge
from stowplan_operator.placement import PlacementView
from stowplan_operator.pod import PodView

START = World(operators=(Operator(),))


def reachable(start: World, rules: Rules, limit: int) -> Iterator[tuple[str, World, World]]:
    """Every step from every state that can be reached, breadth first, up to a number of states."""
    seen, frontier = {start}, deque([start])
    while frontier:
        before = frontier.popleft()
        for name, after in steps(before, rules):
            yield name, before, after
            if after not in seen and len(seen) < limit:
                seen.add(after)
                frontier.append(after)


def opens_for_nothing(before: World, after: World) -> bool:
    """Whether this step opened the gate though no boot as new as the reported one has validated in this pod."""
    return after.pod.gate is True and before.pod.gate is not True and not pods_boots(after)


def settled(world: World, rules: Rules) -> World:
    """The world once the operators have heard everything and have done all they want, and nothing else happens."""
    operators = tuple(Operator(True, world.pod, world.report) for _ in world.operators)
    world = world._replace(operators=operators)
    opens = decided(world.pod, world.report, rules.judge)
    return world if opens is None else world._replace(pod=world.pod._replace(gate=opens))


ONE, TWO = START, START._replace(operators=(Operator(), Operator()))
RESTARTS = Rules(boots=3, pods=1, ghosts=False)
REPLACED = Rules(boots=2, pods=2, ghosts=False)
LATE_WORDS = Rules(boots=2, pods=1)
TWO_WRITERS = Rules(boots=2, pods=1, ghosts=False)


@pytest.mark.parametrize(("start", "rules"), [(ONE, REPLACED), (ONE, LATE_WORDS), (TWO, TWO_WRITERS)])
@pytest.mark.parametrize("other_generation", [False, True])
def test_with_both_layers_no_unvalidated_pod_is_ever_ready(start: World, rules: Rules, other_generation: bool) -> None:
    for name, _, after in reachable(start, rules._replace(other_generation=other_generation), 40_000):
        assert not after.pod.ready or after.pod.boot in after.proven, name


@pytest.mark.parametrize(
    ("start", "rules", "limit"),
    [(ONE, RESTARTS, 90_000), (ONE, REPLACED, 90_000), (ONE, LATE_WORDS, 90_000), (TWO, TWO_WRITERS, 60_000)],
    ids=["restarts", "replaced", "late words", "two operators"],
)
def test_the_gate_alone_never_opens_for_what_is_not_validated(start: World, rules: Rules, limit: int) -> None:
    """With a probe that lies: an opening that arrives is true of the pod that it arrives at, whatever was delayed,
    lost, killed or replaced. And from every state, an operator that hears everything closes what is not validated and
    opens what is: no lost write, no restart and no order of events leaves a gate wrong for good. With one operator the
    space is explored whole.
    """
    judged = set()
    for name, before, after in reachable(start, rules._replace(honest_probe=False), limit):
        assert not opens_for_nothing(before, after), name
        if (what := (after.pod, after.report, after.proven)) in judged:
            continue
        judged.add(what)
        end = settled(after, rules)
        assert not end.pod.gate or pods_boots(end), name
        said = end.report
        if said is not None and said.uid == end.pod.uid and said.validated and said.boot == end.pod.boot > 0:
            assert end.pod.gate, name
        assert settled(end, rules).pod == end.pod, "nothing changed means nothing written"


def test_a_pod_whose_agent_speaks_of_another_generation_is_never_opened() -> None:
    rules = REPLACED._replace(honest_probe=False, other_generation=True)
    assert not any(after.pod.gate for _, _, after in reachable(START, rules, 40_000))


def without_the_boot(pod: PodView, placement: PlacementView | None) -> Gate:
    running = tuple(
        replace(one, started_at=one.started_at and one.started_at.replace(year=1)) for one in pod.containers
    )
    return judge(replace(pod, containers=running), placement)


def without_the_uid(pod: PodView, placement: PlacementView | None) -> Gate:
    return judge(pod, None if placement is None else replace(placement, pod_uid=pod.uid))


def without_the_answer(pod: PodView, placement: PlacementView | None) -> Gate:
    """Takes the agent's report of this boot for its validation."""
    if placement is None:
        return judge(pod, None)
    told = tuple(one.model_copy(update={"status": "True"}) for one in placement.status.conditions)
    return judge(pod, replace(placement, status=placement.status.model_copy(update={"conditions": told})))


@pytest.mark.parametrize("by", [without_the_boot, without_the_uid, without_the_answer])
def test_every_clause_of_the_judge_is_needed(by: Judge) -> None:
    rules = REPLACED._replace(judge=by, honest_probe=False)
    assert any(opens_for_nothing(before, after) for _, before, after in reachable(START, rules, 90_000))


def test_the_guard_of_an_opening_is_needed() -> None:
    """Without the version as a precondition, a slow opening reaches a container that has restarted since."""
    rules = REPLACED._replace(honest_probe=False, guarded=False)
    assert any(opens_for_nothing(before, after) for _, before, after in reachable(START, rules, 90_000))


def test_the_model_gets_somewhere() -> None:
    """Among what is reached: Ready pods, restarted ones, replaced ones, late words of the dead, operators away."""
    seen = {after for _, _, after in reachable(START, REPLACED, 90_000)}
    assert any(world.pod.ready for world in seen)
    assert any(world.pod.ready and world.pod.boot == 2 for world in seen)
    assert any(world.pod.ready and world.pod.uid == 2 for world in seen)
    assert any(world.pod.ready and not world.operators[0].up for world in seen)
    assert any(world.report == Report(1, 1, True) and world.pod.boot == 2 for world in seen)
