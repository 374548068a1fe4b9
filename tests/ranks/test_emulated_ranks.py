"""Two and four ranks as processes, each with an emulated card and a link of its own, one host copy between them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from card_programs import CARD, LAYERS, written
from crew import run_ranks

from stowplan_agent.accelerators.emulated_card import PEER_RATE
from stowplan_agent.ranks.shares import share

SIDE = 96
LAYER_BYTES = SIDE * SIDE * 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("model"), SIDE)


@pytest.fixture(scope="module", params=[2, 4])
def lived(request: pytest.FixtureRequest, folder: Path) -> tuple[int, list[dict[str, Any]]]:
    """How many ranks, and what each of them found."""
    outcome = run_ranks("whole_life", request.param, str(folder))
    assert outcome.code == 0, "\n".join(outcome.errors)
    return request.param, [outcome.result(rank) for rank in range(request.param)]


Lived = tuple[int, list[dict[str, Any]]]


def test_the_output_is_the_same_whatever_the_places_of_the_layers(lived: Lived) -> None:
    _, found = lived
    for one in found:
        assert (one["streamed"], one["mixed"], one["sharded"]) == (True, True, True)


def test_one_host_copy_is_read_once_and_locked_once_by_all_ranks_together(lived: Lived) -> None:
    ranks, found = lived
    assert all(one["shared"] for one in found)
    for rank, one in enumerate(found):
        assert one["readBytes"] == [share(LAYER_BYTES, ranks, rank).nbytes] * LAYERS
    assert sum(one["pinned"] for one in found) == LAYERS * LAYER_BYTES


def test_streaming_takes_the_seconds_of_a_share_and_shards_those_of_the_peer_link(lived: Lived) -> None:
    ranks, found = lived
    layers = 3 * LAYERS
    share_seconds = LAYER_BYTES / ranks / CARD.pinned_rate
    for one in found:
        assert one["seconds"] == pytest.approx(layers * share_seconds, rel=0.05)
        assert one["shardedSeconds"] == pytest.approx(layers * LAYER_BYTES / PEER_RATE, rel=0.05)
        assert one["shardedSeconds"] < one["mixedSeconds"] < one["seconds"]


def test_all_device_memory_is_given_back(lived: Lived) -> None:
    _, found = lived
    assert [one["held"] for one in found] == [0] * len(found)


def test_a_rank_killed_in_a_pass_ends_all_and_leaves_nothing(folder: Path) -> None:
    before = sorted(Path("/dev/shm").iterdir())
    outcome = run_ranks("die_while_streaming", 2, str(folder))
    assert outcome.code == 137
    assert outcome.errors[-1] == (
        "rank 1 was ended by SIGKILL while it was in a pass; and the other ranks are ended too"
    )
    assert sorted(Path("/dev/shm").iterdir()) == before
