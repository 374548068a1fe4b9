"""The agreement in every world that two and three ranks can come to: no two of them ever serve apart, and none waits
for ever.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import pytest
from agreement_world import World, new_world, steps

from stowplan_agent.ranks.agreement import Answer, Chair, ChairPhase, Deadlines, Member, MemberPhase, Order, Step
from stowplan_agent.ranks.agreement.chair import Sent
from stowplan_agent.ranks.agreement.member import End


def check(world: World) -> None:
    chair, serving = world.chair, [rank for rank in world.ranks if rank.serving]
    assert len({rank.weights for rank in serving}) <= 1, "ranks serve in different placements"
    for rank in serving:
        assert rank.weights == rank.member.in_force, "a rank serves what is not in force"
        # Not only on this rank: it was proven on all before any of them serves it.
        assert all(rank.weights in other.proven for other in world.ranks), "an unproven placement is served"
    if chair.phase is ChairPhase.SERVING and world.at_rest and not world.letters:
        assert {rank.weights for rank in world.ranks} == {chair.in_force}, (
            "all are said to serve, and some are elsewhere"
        )
    if chair.phase is ChairPhase.ENDED:
        assert chair.cause, "all is ended, and nobody knows why"


def has_deadlines(world: World) -> bool:
    """Whether deadlines alone, without another message, bring the chair to an end of the round."""
    chair: Chair = world.chair
    for _ in range(3):
        if chair.waits is None:
            break
        chair, _ = chair.late(chair.round, chair.waits)
    waiting = [rank for rank in world.ranks if rank.alive and rank.member.phase is MemberPhase.WAITING]
    return chair.waits is None and all(rank.member.waits is not None for rank in waiting)


def explore(first: World) -> tuple[int, set[str]]:
    """The number of worlds, and how those at rest ended."""
    came_from: dict[World, tuple[World, str] | None] = {first: None}
    queue = deque([first])
    ends: set[str] = set()
    while queue:
        world = queue.popleft()
        following = list(steps(world))
        try:
            check(world)
            assert has_deadlines(world), "something is waited for without a deadline"
            assert following or world.at_rest, "this world stands still"
        except AssertionError as error:
            raise AssertionError("\n".join((str(error), *history(world, came_from)))) from error
        if world.at_rest:
            ends.add("ended" if world.chair.phase is ChairPhase.ENDED else world.chair.in_force)
        for name, after in following:
            if after not in came_from:
                came_from[after] = (world, name)
                queue.append(after)
    return len(came_from), ends


def history(world: World, came_from: dict[World, tuple[World, str] | None]) -> list[str]:
    path = []
    while (before := came_from[world]) is not None:
        world, name = before
        path.append(name)
    return path[::-1]


@pytest.mark.parametrize(("ranks", "faults", "rounds"), [(2, 2, 1), (2, 1, 2), (3, 1, 1)])
def test_in_every_world(ranks: int, faults: int, rounds: int) -> None:
    worlds, ends = explore(new_world(ranks, faults, rounds))
    print(f"{ranks} ranks, {faults} faults, {rounds} rounds: {worlds} worlds")
    assert ends == {"ended", "old", "new"}


class Impatient(Chair):
    """Goes on without the ranks that are late."""

    def late(self, number: int, step: Step) -> tuple[Chair, Sent]:
        bodies = dict(self.answers)
        filled = tuple((rank, bodies.get(rank, self.target)) for rank in sorted(self._asked()))
        return replace(self, answers=filled)._go_on() if self.waits is step else (self, ())


class Hasty(Chair):
    """Has each rank serve as soon as its own part is proven."""

    def hear(self, rank: int, answer: Answer) -> tuple[Chair, Sent]:
        after, sent = super().hear(rank, answer)
        if self.waits is Step.VALIDATE and answer.ok and (answer.round, answer.step) == (self.round, self.step):
            sent += ((rank, Order(self.round, Step.SERVE, self.in_force)),)
        return after, sent


class Stubborn(Chair):
    """Goes back for ever."""

    def _failed(self, cause: str) -> tuple[Chair, Sent]:
        return replace(self, cause=cause)._ask(Step.ROLL_BACK, self.in_force)


@pytest.mark.parametrize("broken", [Impatient, Hasty, Stubborn])
def test_a_chair_that_is_wrong_is_found_out(broken: type[Chair]) -> None:
    world = new_world(2, faults=1, rounds=1)
    with pytest.raises(AssertionError):
        explore(replace(world, chair=broken(2)))


def told(chair: Chair, *answers: tuple[int, Step, bool, object]) -> tuple[Chair, Sent]:
    sent: Sent = ()
    for rank, step, ok, body in answers:
        chair, sent = chair.hear(rank, Answer(1, step, ok, body))
    return chair, sent


BEGUN = [(0, Step.BEGIN, True, "old"), (1, Step.BEGIN, True, "old")]
MEASURED = [*BEGUN, (0, Step.MEASURE, True, "m0"), (1, Step.MEASURE, True, "m1")]
APPLIED = [*MEASURED, (0, Step.SOLVE, True, "new"), (1, Step.APPLY, True, "new"), (0, Step.APPLY, True, "new")]
PROVEN = [*APPLIED, (0, Step.VALIDATE, True, None), (1, Step.VALIDATE, True, None)]


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (BEGUN, (Order(1, Step.MEASURE), Order(1, Step.MEASURE))),
        (MEASURED, (Order(1, Step.SOLVE, ["m0", "m1"]),)),
        ([*MEASURED, (0, Step.SOLVE, True, "old")], (Order(1, Step.SERVE, "old"),) * 2),
        (APPLIED, (Order(1, Step.VALIDATE),) * 2),
        (PROVEN, (Order(1, Step.COMMIT),) * 2),
        ([*APPLIED, (1, Step.VALIDATE, False, "too slow")], (Order(1, Step.ROLL_BACK, "old"),) * 2),
        ([*MEASURED, (0, Step.SOLVE, True, "new"), (1, Step.APPLY, True, "old")], ()),
    ],
)
def test_what_the_chair_orders_next(answers: list[tuple[int, Step, bool, object]], expected: tuple[Order, ...]) -> None:
    _, sent = told(Chair(2), *answers)
    assert tuple(order for _, order in sent) == expected


@pytest.mark.parametrize(
    ("answers", "cause"),
    [
        ([*PROVEN, (1, Step.COMMIT, False, "no memory")], "rank 1 could not commit: no memory"),
        (
            [*APPLIED, (1, Step.VALIDATE, False, "too slow"), (0, Step.ROLL_BACK, False, "no memory")],
            "rank 0 could not roll back: no memory; before that: rank 1 could not validate: too slow",
        ),
        ([(0, Step.BEGIN, True, "old"), (1, Step.BEGIN, True, "other")], "ranks begin in different placements"),
    ],
)
def test_a_way_on_or_back_that_fails_is_the_end_and_wins_over_all(
    answers: list[tuple[int, Step, bool, object]], cause: str
) -> None:
    chair, _ = told(Chair(2), *answers)
    assert (chair.phase, chair.cause) == (ChairPhase.ENDED, cause)


def test_a_member_that_is_told_to_serve_something_else_ends() -> None:
    member, _ = Member(1, "old").begin()
    member, done = member.take(Order(1, Step.SERVE, "new"))
    assert member.phase is MemberPhase.ENDED
    assert done == (End("rank 1 was told to serve another placement than the one in force"),)


def test_every_wait_of_a_member_is_longer_than_the_chairs() -> None:
    deadlines = Deadlines()
    for step in Step:
        assert deadlines.after(step) > deadlines.of(step)
