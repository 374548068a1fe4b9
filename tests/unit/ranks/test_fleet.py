"""What becomes of all ranks when something happens to one: tables of events, and what is done for each."""

from __future__ import annotations

import signal

import pytest

from stowplan_agent.ranks.supervision.endings import Ending
from stowplan_agent.ranks.supervision.fleet import Fleet, Grace, Release, Send
from stowplan_agent.ranks.supervision.output import LONGEST, Prefixer
from stowplan_agent.ranks.supervision.pace import Pace

GRACE = Grace(after_failure=5.0, after_request=25.0)


def fleet(ranks: int = 3) -> Fleet:
    return Fleet(frozenset(range(ranks)), GRACE)


@pytest.mark.parametrize(
    ("ending", "sentence"),
    [
        (Ending(1, 3, "loading"), "rank 1 ended with exit code 3 while it was loading"),
        (Ending(0, -signal.SIGSEGV, "serving"), "rank 0 was ended by SIGSEGV while it was serving"),
        (Ending(2, -9, "loading"), "rank 2 was ended by SIGKILL while it was loading"),
        (
            Ending(2, -9, "loading", out_of_memory=True),
            "rank 2 was killed by the kernel because the container has no host memory left (raise its limit, or plan "
            "for fewer host copies) while it was loading",
        ),
        (Ending(1, 1), "rank 1 ended with exit code 1 while it was doing nothing that it told of"),
    ],
)
def test_an_end_is_told_with_rank_way_and_work(ending: Ending, sentence: str) -> None:
    assert ending.sentence() == sentence


def test_one_that_fails_has_all_others_asked_and_then_killed() -> None:
    state, actions = fleet().ended(Ending(1, 3, "loading"), now=10.0)
    assert actions == (Release(), Send(0, signal.SIGTERM), Send(2, signal.SIGTERM))
    assert state.look(14.9) == (state, ())
    state, actions = state.look(15.0)
    assert actions == (Release(), Send(0, signal.SIGKILL), Send(2, signal.SIGKILL))
    for rank in (0, 2):
        state, actions = state.ended(Ending(rank, -9), now=15.1)
        assert actions == ()
    assert state.over
    assert (state.code, state.cause) == (3, Ending(1, 3, "loading").sentence() + "; and the other ranks are ended too")


def test_the_first_cause_is_the_one_that_is_told() -> None:
    state, _ = fleet(2).ended(Ending(1, -signal.SIGSEGV, "serving"), now=0.0)
    state, _ = state.ended(Ending(0, 1, "waiting for rank 1"), now=0.1)
    assert state.over
    assert state.code == 128 + signal.SIGSEGV
    assert state.cause is not None
    assert state.cause.startswith("rank 1 was ended by SIGSEGV")


def test_asked_to_stop_all_get_the_signal_and_their_time() -> None:
    state, actions = fleet(2).hear(signal.SIGTERM, now=0.0)
    assert actions == (Send(0, signal.SIGTERM), Send(1, signal.SIGTERM))
    state, _ = state.ended(Ending(0, 0), now=1.0)
    state, _ = state.ended(Ending(1, -signal.SIGTERM), now=2.0)  # it has no handler: that is as good
    assert (state.over, state.cause, state.code) == (True, None, 128 + signal.SIGTERM)


def test_one_that_does_not_stop_is_killed_and_told_of() -> None:
    state, _ = fleet(2).hear(signal.SIGTERM, now=0.0)
    state, _ = state.ended(Ending(0, 0), now=1.0)
    state, actions = state.look(25.0)
    assert actions == (Release(), Send(1, signal.SIGKILL))
    state, _ = state.ended(Ending(1, -9), now=25.1)
    assert state.cause == "rank 1 did not end within 25 s of being sent SIGTERM, and was killed"
    assert state.code == 1


def test_ranks_that_end_by_themselves_end_together_or_are_ended() -> None:
    state, actions = fleet(2).ended(Ending(1, 0), now=0.0)
    assert actions == ()
    both, _ = state.ended(Ending(0, 0), now=1.0)
    assert (both.over, both.code, both.cause) == (True, 0, None)
    alone, actions = state.look(25.0)
    assert actions == (Release(), Send(0, signal.SIGKILL))
    assert alone.cause == "rank 0 did not end within 25 s of another rank's end, and was killed"


def test_the_kill_switch_is_passed_on_and_ends_nothing() -> None:
    state, actions = fleet(2).hear(signal.SIGUSR1, now=0.0)
    assert actions == (Send(0, signal.SIGUSR1), Send(1, signal.SIGUSR1))
    assert state == fleet(2)


def test_an_agreement_that_ended_ends_all_once() -> None:
    state, actions = fleet(2).failed("rank 1 could not roll back: no memory", 70, now=0.0)
    assert actions == (Release(), Send(0, signal.SIGTERM), Send(1, signal.SIGTERM))
    assert state.failed("something else", 1, now=1.0) == (state, ())
    for rank in (0, 1):
        state, _ = state.ended(Ending(rank, -15), now=1.0)
    assert (state.over, state.code, state.cause) == (True, 70, "rank 1 could not roll back: no memory")


@pytest.mark.parametrize("event", ["ended", "hear", "failed"])
def test_whatever_happens_there_is_a_deadline_from_then_on(event: str) -> None:
    happened = {
        "ended": lambda: fleet().ended(Ending(0, 1), now=1.0),
        "hear": lambda: fleet().hear(signal.SIGINT, now=1.0),
        "failed": lambda: fleet().failed("x", 1, now=1.0),
    }
    state, _ = happened[event]()
    assert state.deadline is not None
    killed, actions = state.look(state.deadline)
    assert killed.killed
    assert {action.rank for action in actions if isinstance(action, Send)} == state.running


def test_lines_are_prefixed_whole_however_they_come() -> None:
    prefixer = Prefixer(3)
    assert prefixer.feed(b"one\ntw") == b"[rank 3] one\n"
    assert prefixer.feed(b"o\n\nrest") == b"[rank 3] two\n[rank 3] \n"
    assert prefixer.end() == b"[rank 3] rest\n"
    assert prefixer.end() == b""


def test_a_line_without_an_end_is_cut() -> None:
    prefixer = Prefixer(0)
    text = prefixer.feed(b"x" * (2 * LONGEST + 5)) + prefixer.end()
    assert [len(line) - len("[rank 0] ") for line in text.splitlines()] == [LONGEST, LONGEST, 5]


def test_a_rank_that_stands_is_named_once_the_others_have_waited_long_enough() -> None:
    pace = Pace(((0, 0), (0, 0)), since=0.0)
    pace, stands = pace.look(((5, 4), (4, 4)), now=10.0, patience=60.0)
    assert stands is None
    pace, stands = pace.look(((5, 4), (4, 4)), now=69.0, patience=60.0)
    assert stands is None
    pace, stands = pace.look(((5, 4), (4, 4)), now=70.0, patience=60.0)
    assert stands == "rank 1 has stood at turn 4 of the exchange for 60 s while another one waits at 5"


def test_ranks_at_rest_stand_for_good_reason() -> None:
    pace = Pace(((7, 7), (7, 7)), since=0.0)
    assert pace.look(((7, 7), (7, 7)), now=1e6, patience=60.0) == (pace, None)
