"""The weights engine on ranks as processes: the same output in every placement, from one host copy of one file."""

from __future__ import annotations

from pathlib import Path

import pytest
from crew import run_ranks
from engine_programs import check_placements, written_stack


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_serve_every_placement_from_one_copy_and_from_shards(ranks: int, tmp_path: Path) -> None:
    outcome = run_ranks("placements_of_ranks", ranks, str(written_stack(tmp_path)))
    assert outcome.code == 0, "\n".join(outcome.errors)
    check_placements([outcome.result(rank) for rank in range(ranks)])
