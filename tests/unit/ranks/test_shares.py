"""Shares: every byte of a layer is one rank's, once, and no rank has much more than another."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stowplan_agent.ranks.shares import CUT, Share, largest_share, piece_count, pieces, share, shares


@given(st.integers(0, 1 << 32), st.integers(1, 16))
def test_shares_are_the_layer_and_as_even_as_cuts_allow(nbytes: int, ranks: int) -> None:
    found = shares(nbytes, ranks)
    assert [one.start for one in found] == [0, *(one.end for one in found[:-1])]
    assert found[-1].end == nbytes
    assert all(one.start % CUT == 0 or one.start == nbytes for one in found)
    assert max(one.nbytes for one in found) - min(one.nbytes for one in found) < 2 * CUT
    assert largest_share(nbytes, ranks) <= nbytes // ranks + CUT


@given(st.integers(0, 1 << 24), st.integers(1, 8), st.integers(1, 1 << 20))
def test_pieces_of_all_ranks_are_as_many_and_make_up_each_share(nbytes: int, ranks: int, piece_bytes: int) -> None:
    count = piece_count(nbytes, ranks, max(piece_bytes, nbytes // 64 + 1))
    for own in shares(nbytes, ranks):
        found = pieces(own, count)
        assert len(found) == count
        assert [one.start for one in found] == [own.start, *(one.end for one in found[:-1])]
        assert found[-1].end == own.end


@pytest.mark.parametrize(
    ("nbytes", "ranks", "expected"),
    [
        (1024, 2, (Share(0, 512), Share(512, 1024))),
        (1000, 2, (Share(0, 512), Share(512, 1000))),
        (300, 4, (Share(0, 0), Share(0, 256), Share(256, 256), Share(256, 300))),
        (0, 2, (Share(0, 0), Share(0, 0))),
        (5, 1, (Share(0, 5),)),
    ],
)
def test_known_shares(nbytes: int, ranks: int, expected: tuple[Share, ...]) -> None:
    assert shares(nbytes, ranks) == expected


@pytest.mark.parametrize(("ranks", "rank"), [(2, 2), (2, -1), (0, 0)])
def test_a_rank_that_there_is_not_has_no_share(ranks: int, rank: int) -> None:
    with pytest.raises(ValueError, match="has no share"):
        share(1024, ranks, rank)
