"""How ranks share a sequence: chosen by the model's heads, or as stated; refused in a sentence with the way out."""

from __future__ import annotations

import pytest

from stowplan_agent.pipeline.completeness import LoadError
from stowplan_agent.pipeline.sequence_parallel import choose
from stowplan_api.diffusion_deployment import Parallelism


@pytest.mark.parametrize(
    ("heads", "ranks", "ulysses", "ring"),
    [
        ({"transformer": 40}, 8, 8, 1),
        ({"transformer": 24}, 16, 8, 2),
        ({"transformer": 3}, 2, 2, 1),  # the last rank's heads are filled up, and one of them is its own
        ({"transformer": 3}, 8, 2, 4),
        ({"transformer": 40, "transformer_2": 24}, 4, 4, 1),
    ],
)
def test_heads_are_dealt_out_as_far_as_they_go(heads: dict[str, int], ranks: int, ulysses: int, ring: int) -> None:
    assert choose(None, heads, ranks, ring=True) == Parallelism(ulysses=ulysses, ring=ring)


def test_what_is_stated_is_done() -> None:
    assert choose(Parallelism(ring=2), {"transformer": 40}, 2, ring=True) == Parallelism(ring=2)


@pytest.mark.parametrize(
    ("wanted", "heads", "ring", "sentence"),
    [
        (None, {}, True, "set resources.gpus to 1"),
        (Parallelism(ulysses=4), {"transformer": 2}, True, "transformer has 2 heads of attention"),
        (Parallelism(ring=4), {"transformer": 8}, False, "ring attention over 4 devices needs a GPU"),
        (None, {"transformer": 2}, False, "no more devices than 2"),
    ],
)
def test_what_cannot_be_is_refused(
    wanted: Parallelism | None, heads: dict[str, int], ring: bool, sentence: str
) -> None:
    with pytest.raises(LoadError, match=sentence):
        choose(wanted, heads, 4, ring=ring)
