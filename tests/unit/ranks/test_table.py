"""The agreement over sockets: a table and delegates that do what they are told, in threads of one process."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Collection
from typing import Any

import pytest
from circle_of_threads import together

from stowplan_agent.ranks.agreement import Answer, ChairPhase, Deadlines, MessageError, Order, Step
from stowplan_agent.ranks.agreement.delegate import AgreementEnded, Delegate, Overtaken, Works
from stowplan_agent.ranks.agreement.messages import LONGEST, Frames, encode
from stowplan_agent.ranks.agreement.table import Table

OLD, NEW = {"layers": 0}, {"layers": 3}
MESSAGES = [Order(1, Step.APPLY, NEW), Answer(1, Step.APPLY, True, NEW), Answer(2, Step.COMMIT, False, "né")]


class Weights:
    """What a rank's steps work on, and which of them fails."""

    def __init__(self, rank: int, failing: Collection[tuple[int, Step]]) -> None:
        self.rank = rank
        self.failing = failing
        self.placement: Any = OLD
        self.did: list[Step] = []

    def works(self) -> Works:
        def put(body: Any) -> Any:
            self.placement = body
            return body

        steps: dict[Step, Callable[[Any], Any]] = {
            Step.MEASURE: lambda _: {"rank": self.rank},
            Step.SOLVE: lambda bodies: NEW if bodies == [{"rank": 0}, {"rank": 1}] else "not what was measured",
            Step.APPLY: put,
            Step.VALIDATE: lambda _: None,
            Step.COMMIT: lambda _: None,
            Step.ROLL_BACK: put,
        }
        return {step: self._unless_failing(step, work) for step, work in steps.items()}

    def _unless_failing(self, step: Step, work: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def run(body: Any) -> Any:
            self.did.append(step)
            if (self.rank, step) in self.failing:
                raise RuntimeError(f"{step} was made to fail")
            return work(body)

        return run


def hold(table: Table, sockets: list[socket.socket], over: threading.Event) -> None:
    while not over.is_set() and table.ended is None:
        for rank in range(len(sockets)):
            table.read(rank, time.monotonic())
            table.send(rank)
        table.look(time.monotonic())
        over.wait(0.001)
    for one in sockets:
        one.close()


def agree(*failing: tuple[int, Step]) -> tuple[Table, list[Weights], list[Any]]:
    """A round of two ranks, with these steps of theirs failing."""
    pairs = [socket.socketpair() for _ in range(2)]
    sockets, over = [ours for ours, _ in pairs], threading.Event()
    table = Table(sockets, Deadlines())
    chair = threading.Thread(target=hold, args=(table, sockets, over))
    chair.start()
    weights = [Weights(rank, failing) for rank in range(2)]

    def take_part(rank: int) -> Any:
        return Delegate(rank, pairs[rank][1], OLD).agree(weights[rank].works())

    try:
        found = together(2, take_part)
    finally:
        over.set()
        chair.join()
    return table, weights, found


def test_all_go_to_what_rank_0_solved_from_what_all_measured() -> None:
    table, weights, found = agree()
    assert found == [NEW, NEW]
    assert [one.placement for one in weights] == [NEW, NEW]
    assert (Step.SOLVE in weights[0].did, Step.SOLVE in weights[1].did) == (True, False)
    assert table.chair.in_force == NEW


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("step", [Step.MEASURE, Step.APPLY, Step.VALIDATE])
def test_a_failure_on_any_rank_has_all_go_back(rank: int, step: Step) -> None:
    table, weights, found = agree((rank, step))
    assert found == [OLD, OLD]
    assert [one.placement for one in weights] == [OLD, OLD]
    assert all(one.did[-1] is Step.ROLL_BACK for one in weights)
    assert table.chair.cause == f"rank {rank} could not {step}: {step} was made to fail"


@pytest.mark.parametrize("failing", [[Step.COMMIT], [Step.ROLL_BACK, Step.VALIDATE]])
def test_where_there_is_no_way_back_all_end_with_one_cause(failing: list[Step]) -> None:
    table, _, found = agree(*((1, step) for step in failing))
    assert table.chair.phase is ChairPhase.ENDED
    assert str(table.ended).startswith(f"rank 1 could not {failing[0]}: {failing[0]} was made to fail")
    assert all(isinstance(one, AgreementEnded) for one in found)


def test_a_rank_that_says_nothing_is_named_when_its_time_is_up() -> None:
    ours, theirs = zip(*(socket.socketpair() for _ in range(2)), strict=True)
    table = Table(list(ours), Deadlines(begin=10.0))
    theirs[0].sendall(encode(Answer(1, Step.BEGIN, True, OLD)))
    table.read(0, now=100.0)
    assert table.deadline == 110.0
    table.look(109.9)
    assert table.ended is None
    table.look(110.0)
    assert table.ended == "rank 1 did not begin in time"


def test_a_rank_that_cannot_be_understood_is_lost() -> None:
    ours, theirs = socket.socketpair()
    table = Table([ours], Deadlines())
    theirs.sendall(b"\0\0\0\2{}")
    assert not table.read(0, now=0.0)
    assert str(table.ended).startswith("rank 0 is lost: 2 bytes that are no message between ranks")


def test_orders_that_a_rank_does_not_take_yet_wait_for_it() -> None:
    ours, theirs = zip(*(socket.socketpair() for _ in range(2)), strict=True)
    table = Table(list(ours), Deadlines())
    large = "x" * (4 << 20)
    for rank, step in ((0, Step.BEGIN), (1, Step.BEGIN), (1, Step.MEASURE)):
        theirs[rank].sendall(encode(Answer(1, step, True, OLD)))
        table.read(rank, now=0.0)
    sent = encode(Answer(1, Step.MEASURE, True, large))
    sender = threading.Thread(target=theirs[0].sendall, args=(sent,))
    sender.start()
    while not table.has_unsent(0):
        table.read(0, now=0.0)
    sender.join()
    frames, found = Frames(), []
    while not any(order.step is Step.SOLVE for order in found):
        found += list(frames.feed(theirs[0].recv(1 << 20)))
        table.send(0)
    assert found[-1].body == [large, OLD]
    assert not table.has_unsent(0)


def test_work_that_a_failure_elsewhere_has_overtaken_is_broken_off() -> None:
    ours, theirs = socket.socketpair()
    delegate = Delegate(0, theirs, OLD)

    def apply(_: Any) -> Any:
        ours.sendall(encode(Order(1, Step.ROLL_BACK, OLD)))
        with pytest.raises(Overtaken):
            delegate.interrupt()
        ours.sendall(encode(Order(1, Step.SERVE, OLD)))
        raise Overtaken("left off")

    ours.sendall(encode(Order(1, Step.APPLY, NEW)))
    assert delegate.agree({Step.APPLY: apply, Step.ROLL_BACK: lambda body: body}) == OLD


def test_a_rank_that_hears_no_more_ends() -> None:
    _, theirs = socket.socketpair()
    moments = iter([0.0, 1e9, 1e9])
    with pytest.raises(AgreementEnded, match="rank 1 was told nothing more after it had done its part"):
        Delegate(1, theirs, OLD, clock=lambda: next(moments)).agree({})


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_messages_come_out_as_they_went_in_however_they_are_cut(size: int) -> None:
    text, frames = b"".join(map(encode, MESSAGES)), Frames()
    assert [one for at in range(0, len(text), size) for one in frames.feed(text[at : at + size])] == MESSAGES


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (b"\0\0\0\x0f" + b'{"version": 99}', "version 99, and this is 1"),
        (b"\0\0\0\4null", "no message"),
        ((LONGEST + 1).to_bytes(4, "big"), "the longest has"),
    ],
)
def test_what_is_no_message_is_refused(text: bytes, complaint: str) -> None:
    with pytest.raises(MessageError, match=complaint):
        list(Frames().feed(text))
