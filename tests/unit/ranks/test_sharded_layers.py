"""Layers in three places on ranks that are threads: every move, every failure of one, and what can be seen between."""

from __future__ import annotations

import random

import pytest
import torch
from circle_of_threads import together
from rank_crew import ENTRIES, Ranks, planned

from stowplan_agent.weights import EntryError
from unit.weights.stacks import Stack


@pytest.mark.parametrize("ranks", [2, 4])
def test_layers_in_any_place_are_bit_equal_and_take_what_is_planned_and_no_more_on_the_way(ranks: int) -> None:
    crew, order = Ranks(ranks), random.Random(ranks)
    names = list(ENTRIES)
    moves = ["sharded", "resident", "sharded", "some", "others", "streamed", "sharded", "offload", "some"]
    before = "offload"
    for name in [*moves, *order.choices(names, k=4)]:
        committed = order.random() < 0.7
        for card in crew.cards:
            card.reset_peaks()
        ends = [
            max(planned(ENTRIES[one], crew.engines[0], ranks, rank)[0] for one in (before, name))
            for rank in range(ranks)
        ]
        crew.place(name, commit=committed)
        for rank in range(ranks):
            assert crew.cards[rank].counters().peak <= ends[rank]
        assert crew.right()
        before = name
        if committed:
            loose = crew.engines[0].describe()[0].loose_bytes
            for rank in range(ranks):
                device, host = planned(ENTRIES[name], crew.engines[0], ranks, rank)
                own = loose if ENTRIES[name].mode == "Offload" or ENTRIES[name].loose_lifetime == "Forward" else 0
                assert crew.held(rank) == (device, host + own)
    crew.place("sharded")
    fresh = Ranks(ranks, ENTRIES["sharded"])
    fresh.all(lambda rank: fresh.engines[rank].commit())
    assert fresh.right()
    for rank in range(ranks):
        assert crew.engines[rank].snapshot() == fresh.engines[rank].snapshot()
        assert crew.engines[rank].entry("part").groups[0].sharded_layers == 4  # type: ignore[index]


def test_layers_are_loaded_straight_into_shards() -> None:
    crew = Ranks(2, ENTRIES["sharded"])
    for rank in range(2):
        device, host = planned(ENTRIES["sharded"], crew.engines[rank], 2, rank)
        assert crew.held(rank) == (device, host)
        assert crew.cards[rank].counters().peak == device
    assert crew.right()


@torch.no_grad()
def test_a_state_is_whole_on_one_rank_alone_and_takes_memory_until_the_component_runs_again() -> None:
    crew = Ranks(2, ENTRIES["sharded"])
    crew.all(lambda rank: crew.engines[rank].commit())
    before = crew.held(0)
    assert torch.isnan(crew.stacks[0].first[0].linear.weight).all()
    assert crew.stacks[0].first[0].linear.weight.shape == (16, 16)
    wanted, found = Stack().state_dict(), crew.stacks[0].state_dict()
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[key], wanted[key]) for key in wanted if not key.endswith("passes"))
    crew.engines[0].check()
    first, second = crew.engines[0].describe()[0].groups
    assert crew.held(0) == (before[0], before[1] + sum(first.layer_bytes[1:]) + sum(second.layer_bytes))
    assert crew.right()
    assert crew.held(0) == before
    assert all(torch.equal(found[key], wanted[key]) for key in wanted if not key.endswith("passes"))


@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("resident", "sharded"),
        ("sharded", "resident"),
        ("sharded", "streamed"),
        ("streamed", "some"),
        ("some", "others"),
    ],
)
def test_a_move_that_fails_on_one_rank_anywhere_is_undone_on_all(before: str, after: str, committed: bool) -> None:
    crew = Ranks(2)
    crew.place(before, commit=committed)
    found = [engine.snapshot() for engine in crew.engines]

    def move(rank: int) -> None:
        crew.engines[rank].place(ENTRIES[after])

    for number in range(1, 200):
        rank = number % 2
        crew.cards[rank].calls, crew.cards[rank].fail_at = 0, number
        outcome = together(2, move)
        crew.cards[rank].fail_at = 0
        if not any(isinstance(one, Exception) for one in outcome):
            break
        assert all(isinstance(one, Exception) for one in outcome), (number, outcome)
        for one in range(2):
            crew.engines[one].check()
            assert crew.engines[one].snapshot() == found[one], number
    assert crew.right()
    assert number > 3
    crew.place(before)
    assert crew.right()


def test_ranks_with_different_weights_have_no_shards_and_stay_where_they_are() -> None:
    stacks = [Stack(), Stack()]
    with torch.no_grad():
        stacks[1].first[2].linear.weight[0] += 1
    crew = Ranks(2, stacks=stacks)
    crew.place("streamed")
    before = [engine.snapshot() for engine in crew.engines]
    found = together(2, lambda rank: crew.engines[rank].place(ENTRIES["sharded"]))
    assert [type(one) for one in found] == [EntryError, EntryError]
    assert "component part: the ranks have different weights in layers" in str(found[0])
    assert [engine.snapshot() for engine in crew.engines] == before
