"""Meetings of ranks: all hear all, and whoever is missing is named in time."""

from __future__ import annotations

import os

from circle_of_threads import circles, together

from stowplan_agent.ranks.board import Board, Turn, reached
from stowplan_agent.ranks.circle import LONGEST
from stowplan_agent.ranks.errors import RankLost, RanksError


def test_every_rank_hears_every_value_by_rank() -> None:
    seats = circles(4)
    found = together(4, lambda rank: [one.value for one in seats[rank].meet("sizes", {"rank": rank})])
    assert found == [[{"rank": rank} for rank in range(4)]] * 4


def test_descriptors_arrive_open_and_are_of_the_same_file() -> None:
    seats = circles(3)

    def meet(rank: int) -> int:
        mine = os.memfd_create("mine")
        os.write(mine, str(rank).encode())
        met = seats[rank].meet("files", None, [mine])
        assert [os.pread(one.descriptors[0], 8, 0) for one in met] == [b"0", b"1", b"2"]
        for one in met:
            os.close(one.descriptors[0])
        return rank

    assert together(3, meet) == [0, 1, 2]


def test_ranks_that_have_come_to_different_meetings_learn_it() -> None:
    seats = circles(2)
    found = together(2, lambda rank: seats[rank].meet("one" if rank else "other"))
    assert all(isinstance(error, RanksError) for error in found)
    assert str(found[0]) == "rank 1 has come to 'one' and rank 0 to 'other': they run apart"


def test_a_rank_that_does_not_come_is_named_when_the_time_is_up() -> None:
    first, second = circles(2, patience=0.05)
    try:
        first.meet("late")
        raise AssertionError("nobody came")
    except RankLost as error:
        assert (error.rank, str(error)) == (1, "rank 1 did not come to 'late' within 0.05 s of rank 0")
    second.close()


def test_a_rank_that_is_gone_is_named_at_once() -> None:
    first, second = circles(2, patience=600.0)
    second.close()
    for _ in range(2):
        try:
            first.meet("gone")
            raise AssertionError("nobody came")
        except RankLost as error:
            assert error.rank == 1
            assert "'gone'" in str(error)


def test_what_would_not_fit_is_refused_before_anybody_waits() -> None:
    first, _ = circles(2)
    try:
        first.meet("large", "x" * LONGEST)
        raise AssertionError("it cannot fit")
    except RanksError as error:
        assert "meet several times" in str(error)


def test_a_board_is_seen_by_all_who_have_its_descriptor() -> None:
    mine = Board.make(2)
    theirs = Board(mine.descriptor, 2)
    mine.counter(1, Turn.FETCHED)[0] = 7
    mine.say(1, "at apply of round 3: " + "é" * 600)
    assert int(theirs.counter(1, Turn.FETCHED)[0]) == 7
    assert int(theirs.counter(1, Turn.SWAPPED)[0]) == int(theirs.counter(0, Turn.FETCHED)[0]) == 0
    assert theirs.doing(1).startswith("at apply of round 3: ééé")
    assert theirs.doing(0) == ""
    mine.say(1, "serving")
    assert theirs.doing(1) == "serving"


def test_turns_wrap_and_a_release_reaches_all_of_them_once() -> None:
    assert reached(5, 5)
    assert reached(6, 5)
    assert not reached(4, 5)
    assert reached(3, (1 << 32) - 2)
    assert not reached((1 << 32) - 2, 3)
    board = Board.make(2)
    board.counter(0, Turn.FETCHED)[0] = 11
    board.release()
    Board(board.descriptor, 2).release()
    assert all(reached(int(board.counter(rank, turn)[0]), 1000) for rank in range(2) for turn in Turn)
