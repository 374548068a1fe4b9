"""Two GPUs of one host: shares that are swapped by their copy engines, in step without their hosts.

``pytest -m gpu tests/ranks``. The sizes are small: what is shown is that no byte is wrong and nobody waits for ever;
`benchmarks/ranks.py` measures.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from card_programs import LAYERS, written
from crew import run_ranks
from engine_programs import check_placements, written_stack

from stowplan_agent.ranks.shares import share

SIDE = 2048
LAYER_BYTES = SIDE * SIDE * 4

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="fewer than two NVIDIA GPUs are visible to torch"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("model"), SIDE)


def test_the_output_is_bit_equal_whatever_the_places_and_one_copy_is_locked(folder: Path) -> None:
    outcome = run_ranks("whole_life", 2, str(folder), "cuda")
    assert outcome.code == 0, "\n".join(outcome.errors)
    found = [outcome.result(rank) for rank in range(2)]
    for rank, one in enumerate(found):
        assert (one["streamed"], one["mixed"], one["sharded"]) == (True, True, True)
        assert one["readBytes"] == [share(LAYER_BYTES, 2, rank).nbytes] * LAYERS
        assert one["shared"]
    assert sum(one["pinned"] for one in found) == LAYERS * LAYER_BYTES


def test_the_engine_serves_every_placement_from_one_copy_and_from_shards(tmp_path: Path) -> None:
    outcome = run_ranks("placements_of_ranks", 2, str(written_stack(tmp_path)), "cuda")
    assert outcome.code == 0, "\n".join(outcome.errors)
    check_placements([outcome.result(rank) for rank in range(2)])


def test_a_rank_killed_in_a_pass_ends_the_other_whose_streams_wait_for_it(folder: Path) -> None:
    outcome = run_ranks("die_while_streaming", 2, str(folder), "cuda")
    assert outcome.code == 137
    assert outcome.errors[-1] == "rank 1 was ended by SIGKILL while it was in a pass; and the other ranks are ended too"


def test_a_rank_that_stands_still_in_a_pass_is_named_though_no_host_waits_for_it(folder: Path) -> None:
    outcome = run_ranks("stand_still", 2, str(folder), "cuda", patience=10.0)
    assert outcome.code == 70
    assert outcome.cause is not None
    assert outcome.cause.startswith("rank 1 has stood at turn ")
