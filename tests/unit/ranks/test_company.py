"""What all ranks do in step: a failure of one is a failure of all, the same one, and they go on together after it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from circle_of_threads import circles, together

from stowplan_agent.ranks.company import PIECE, Company
from stowplan_agent.ranks.errors import RankLost, RanksError


def companies(ranks: int) -> list[Company]:
    seats: list[Any] = [SimpleNamespace(rank=one.rank, ranks=ranks, circle=one, board=None) for one in circles(ranks)]
    return [Company(seat) for seat in seats]


def short(_: Company) -> None:
    raise torch.OutOfMemoryError("Tried to allocate 2.00 GiB")


def broken(_: Company) -> None:
    raise ValueError("one of its own")


def waiting(company: Company) -> None:
    """At a meeting to which the others do not come."""
    company.most("a step that was not made", 0)


def well(_: Company) -> str:
    return "frames"


@pytest.mark.parametrize("others", [well, waiting, broken])
@pytest.mark.parametrize("failing", [0, 2])
def test_one_rank_out_of_memory_is_that_on_all(failing: int, others: Callable[[Company], object]) -> None:
    ranks = companies(3)

    def request(rank: int) -> object:
        work = short if rank == failing else others
        return ranks[rank].request(lambda: work(ranks[rank]))

    found = together(3, request)
    assert [str(one) for one in found] == ["Tried to allocate 2.00 GiB"] * 3
    assert all(isinstance(one, torch.OutOfMemoryError) for one in found)
    assert together(3, lambda rank: ranks[rank].request(lambda: rank)) == [0, 1, 2], "they are in step again"


def test_a_rank_that_fails_first_is_named_by_the_others() -> None:
    ranks = companies(2)
    found = together(2, lambda rank: ranks[rank].request(lambda: (broken if rank else waiting)(ranks[rank])))
    assert [str(one) for one in found] == ["rank 1 could not run the request: one of its own", "one of its own"]
    assert isinstance(found[0], RanksError)


def test_ranks_stop_after_one_and_the_same_step() -> None:
    ranks = companies(3)

    class Asked(Exception):  # noqa: N818
        pass

    def request(rank: int) -> object:
        steps: list[int] = []
        stop = ranks[rank].stops(lambda: rank == 1 and len(steps) == 2)

        def work() -> None:
            for number in range(5):
                steps.append(number)
                if stop():
                    raise Asked

        with pytest.raises(Asked):
            ranks[rank].request(work)
        return len(steps)

    assert together(3, request) == [2, 2, 2]


def test_a_long_value_comes_whole_from_every_rank() -> None:
    ranks = companies(2)
    values = ["short", "\n" * (2 * PIECE + 1)]
    assert together(2, lambda rank: ranks[rank].gather("text", values[rank])) == [values, values]


def test_rank_0_goes_first_and_its_failure_is_everybodys() -> None:
    ranks, order = companies(3), []
    assert together(3, lambda rank: ranks[rank].in_turn("fetch", lambda: order.append(rank))) == [None] * 3
    assert order[0] == 0

    def fail() -> None:
        raise OSError("no such model")

    found = together(3, lambda rank: ranks[rank].in_turn("fetch", fail))
    assert [str(one) for one in found] == ["no such model", *["rank 0 could not fetch: no such model"] * 2]


def test_a_rank_that_goes_back_takes_those_out_of_their_request() -> None:
    ranks = companies(3)

    def go_back(rank: int) -> object:
        if rank != 1:
            with pytest.raises(RanksError):
                ranks[rank].request(lambda: waiting(ranks[rank]))
        return ranks[rank].regroup(f"from {rank}")

    assert together(3, go_back) == [[f"from {rank}" for rank in range(3)]] * 3
    assert together(3, lambda rank: ranks[rank].request(lambda: rank)) == [0, 1, 2], "they are in step again"


def test_a_rank_that_is_gone_ends_a_regrouping() -> None:
    first, second = companies(2)
    second.seat.circle.close()
    with pytest.raises(RankLost):
        first.regroup(None)
