"""Everything that can happen to a chair, its members and the messages between them, one step at a time.

Messages come in any order, however late; they may be lost or come twice; a rank may die at any moment; any work may
fail; a deadline may come at any moment. Lost and doubled messages, deaths, failures and early deadlines are faults, of
which a world has so many left. A deadline that comes when nothing else can happen is none. A member whose own deadline
comes ends, which is what a death is. Weights are modelled by the name of the placement that they are in.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from stowplan_agent.ranks.agreement import Answer, Chair, ChairPhase, Member, MemberPhase, Order, Step
from stowplan_agent.ranks.agreement.member import Done, End, Say, Work

OLD, NEW = "old", "new"


class Letter(NamedTuple):
    """A message on its way: to the chair from a rank, or to a rank from the chair."""

    rank: int
    message: Order | Answer


@dataclass(frozen=True)
class Rank:
    """A member, whether its process lives, what its weights are in, and the work that it is at."""

    member: Member
    weights: str = OLD
    alive: bool = True
    noticed: bool = False
    work: Work | None = None
    proven: frozenset[str] = frozenset({OLD})
    """Placements that were proven on it."""

    def ready(self, rounds: int) -> bool:
        """Whether it may begin one of so many rounds."""
        member = self.member
        begun = member.order.round if member.order is not None else 0
        return member.phase in (MemberPhase.IDLE, MemberPhase.SERVING) and begun < rounds

    @property
    def serving(self) -> bool:
        return self.alive and self.member.phase is MemberPhase.SERVING


@dataclass(frozen=True)
class World:
    chair: Chair
    ranks: tuple[Rank, ...]
    faults: int
    """How many may still happen."""
    rounds: int
    """How many there are, in all."""
    letters: frozenset[Letter] = frozenset()

    @property
    def at_rest(self) -> bool:
        """Whether nothing has to happen any more: all serve, or all are gone."""
        if self.chair.phase is ChairPhase.ENDED:
            return not any(rank.alive for rank in self.ranks)
        return self.chair.phase is ChairPhase.SERVING and all(rank.alive for rank in self.ranks)


def new_world(ranks: int, faults: int, rounds: int) -> World:
    members = tuple(Rank(Member(rank, OLD)) for rank in range(ranks))
    return World(Chair(ranks), members, faults, rounds)


def steps(world: World) -> Iterator[tuple[str, World]]:
    """What can happen next, with a name; faults are in capitals."""
    for name, after in _all_steps(world):
        yield name, replace(after, letters=frozenset(one for one in after.letters if _matters(after, one)))


def _matters(world: World, letter: Letter) -> bool:
    """Whether it can still change anything: what is behind its reader's position never will."""
    if isinstance(letter.message, Answer):
        chair, message = world.chair, letter.message
        begins = message.step is Step.BEGIN and message.round > chair.round
        here = chair.phase is ChairPhase.ASKING and _position(message) >= Order(chair.round, chair.step).position
        return chair.phase is not ChairPhase.ENDED and (begins or here)
    member = world.ranks[letter.rank].member
    last = member.next or member.order
    return world.ranks[letter.rank].alive and (last is None or letter.message.position >= last.position)


def _position(message: Order | Answer) -> tuple[int, int]:
    return Order(message.round, message.step).position


def _all_steps(world: World) -> Iterator[tuple[str, World]]:
    free = list(_free_steps(world))
    yield from free
    chair = world.chair
    if not free and chair.waits is None:
        for index, rank in enumerate(world.ranks):
            member, done = rank.member.late()
            if done and rank.alive:
                yield f"rank {index} waits NO LONGER", _do(world, index, replace(rank, member=member), done)
    if chair.waits is not None and (world.faults or not free):
        late, sent = chair.late(chair.round, chair.waits)
        spent = replace(world, chair=late, faults=world.faults - bool(free))
        yield f"the chair waits NO LONGER ({chair.waits})", _send(spent, sent)
    if world.faults:
        yield from _faults(replace(world, faults=world.faults - 1))


def _free_steps(world: World) -> Iterator[tuple[str, World]]:
    chair = world.chair
    if chair.phase is ChairPhase.ENDED and any(rank.alive for rank in world.ranks):
        dead = tuple(replace(rank, alive=False, work=None) for rank in world.ranks)
        yield "all ranks are ended", replace(world, ranks=dead)
    for letter in world.letters:
        yield f"{letter} arrives", _deliver(replace(world, letters=world.letters - {letter}), letter)
    for index, rank in enumerate(world.ranks):
        if not rank.alive and not rank.noticed:
            gone = _with_rank(world, index, replace(rank, noticed=True))
            ended, sent = chair.lost(index, "it died")
            yield f"the end of rank {index} is noticed", _send(replace(gone, chair=ended), sent)
        if rank.alive and rank.ready(world.rounds):
            member, done = rank.member.begin()
            yield f"rank {index} is ready", _do(world, index, replace(rank, member=member), done)
        if rank.alive and rank.work is not None:
            for body, after in _results(rank, rank.work):
                member, done = rank.member.done(True, body)
                finished = replace(after, member=member, work=None)
                yield f"rank {index} has done {rank.work.step}: {body}", _do(world, index, finished, done)


def _faults(world: World) -> Iterator[tuple[str, World]]:
    for letter in world.letters:
        yield f"{letter} IS LOST", replace(world, letters=world.letters - {letter})
        yield f"{letter} ARRIVES AND WILL AGAIN", _deliver(world, letter)
    for index, rank in enumerate(world.ranks):
        if rank.alive:
            yield f"rank {index} DIES", _with_rank(world, index, replace(rank, alive=False, work=None))
        if rank.alive and rank.work is not None:
            member, done = rank.member.done(False, "it failed")
            failed = replace(rank, member=member, work=None)
            yield f"rank {index} FAILS to {rank.work.step}", _do(world, index, failed, done)


def _results(rank: Rank, work: Work) -> Iterator[tuple[str | None, Rank]]:
    if work.step is Step.SOLVE:
        yield OLD, rank
        yield NEW, rank
    elif work.step in (Step.APPLY, Step.ROLL_BACK):
        yield work.body, replace(rank, weights=work.body)
    elif work.step is Step.VALIDATE:
        yield None, replace(rank, proven=rank.proven | {rank.weights})
    else:
        yield None, rank


def _do(world: World, index: int, rank: Rank, done: Done) -> World:
    letters = set(world.letters)
    for one in done:
        if isinstance(one, Say):
            letters.add(Letter(index, one.answer))
        elif isinstance(one, Work):
            rank = replace(rank, work=one)
        elif isinstance(one, End):
            rank = replace(rank, alive=False, work=None)
    return _with_rank(replace(world, letters=frozenset(letters)), index, rank)


def _deliver(world: World, letter: Letter) -> World:
    if isinstance(letter.message, Answer):
        chair, sent = world.chair.hear(letter.rank, letter.message)
        return _send(replace(world, chair=chair), sent)
    rank = world.ranks[letter.rank]
    if not rank.alive:
        return world
    member, done = rank.member.take(letter.message)
    return _do(world, letter.rank, replace(rank, member=member), done)


def _send(world: World, sent: tuple[tuple[int, Order], ...]) -> World:
    return replace(world, letters=world.letters | {Letter(rank, _plain(order)) for rank, order in sent})


def _plain(order: Order) -> Order:
    """What was measured does not matter here, and a list could not be a member of a set."""
    return replace(order, body=None) if order.step is Step.SOLVE else order


def _with_rank(world: World, index: int, rank: Rank) -> World:
    return replace(world, ranks=(*world.ranks[:index], rank, *world.ranks[index + 1 :]))
