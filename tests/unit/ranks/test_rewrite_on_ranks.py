"""Adapters on several ranks: like on a resident twin wherever layers are, on all ranks or on none."""

from __future__ import annotations

import pytest
import torch
from circle_of_threads import together
from rank_crew import ENTRIES, Ranks, X, planned

from stowplan_agent.weights.rewriting.headroom import RewriteError
from unit.weights.stacks import Stack
from unit.weights.tuners import load
from unit.weights.twins import STEPS, aligned_twin


def outputs(crew: Ranks) -> list[torch.Tensor]:
    @torch.no_grad()
    def run(rank: int) -> torch.Tensor:
        with crew.engines[rank].request():
            crew.stacks[rank](X)
            return crew.stacks[rank](X)

    return list(crew.all(run))


@torch.no_grad()
def test_every_step_equals_a_resident_twins_and_layers_are_in_shards_again() -> None:
    twin, crew = aligned_twin(), Ranks(2)
    crew.place("some")
    for step in ("load", "fuse", "unfuse", "unload"):
        change = STEPS[step]
        change(twin)

        def rewrite(rank: int, change: object = change) -> None:
            with crew.engines[rank].rewriting():
                change(crew.stacks[rank])  # type: ignore[operator]
            crew.engines[rank].check()

        crew.all(rewrite)
        assert all(torch.equal(output, twin(X)) for output in outputs(crew)), step
        assert [crew.engines[rank].entry("part") for rank in range(2)] == [ENTRIES["some"]] * 2
        for rank in range(2):
            assert crew.held(rank) == planned(ENTRIES["some"], crew.engines[rank], 2, rank), step
    for entry in ("resident", "sharded", "streamed"):
        crew.place(entry)
        assert all(torch.equal(output, twin(X)) for output in outputs(crew)), entry


@torch.no_grad()
@pytest.mark.parametrize("where", ["in the caller", "for lack of host memory"])
def test_a_rewrite_that_fails_on_one_rank_is_undone_on_all(where: str) -> None:
    crew = Ranks(2)
    crew.place("sharded")
    before = [engine.snapshot() for engine in crew.engines]

    def rewrite(rank: int) -> None:
        headroom = 1000 if where == "for lack of host memory" and rank == 1 else None
        with crew.engines[rank].rewriting(headroom):
            load(crew.stacks[rank])
            if where == "in the caller" and rank == 1:
                raise OSError("adapter.safetensors: the file ends before byte 7")

    found = together(2, rewrite)
    if where == "in the caller":
        assert isinstance(found[1], OSError)
        assert str(found[0]) == "rank 1 could not rewrite the weights: adapter.safetensors: the file ends before byte 7"
    else:
        assert isinstance(found[1], RewriteError) and "out of their shards needs" in str(found[1])
        assert str(found[0]).startswith("rank 1 could not begin the rewrite: component part: bringing layers out of")
    assert [engine.snapshot() for engine in crew.engines] == before
    assert all(isinstance(stack, Stack) and not hasattr(stack.widen, "low") for stack in crew.stacks)
    assert crew.right()
