"""The ledger: balances by owner and tier, never below zero, and no byte of disagreement with the allocator."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stowplan_agent.weights.ledger import Ledger, LedgerError, Tier

entries = st.tuples(st.sampled_from(["vae", "encoder"]), st.sampled_from(list(Tier)), st.integers(-50, 50))


@given(st.lists(entries))
def test_balances_are_the_sum_of_what_was_taken_and_never_negative(history: list[tuple[str, Tier, int]]) -> None:
    ledger, expected = Ledger(), {}
    for owner, tier, nbytes in history:
        balance = expected.get((owner, tier), 0)
        if balance + nbytes < 0:
            with pytest.raises(LedgerError, match=rf"{owner} would give back {-nbytes} bytes of {tier} memory"):
                ledger.give_back(owner, tier, -nbytes)
            continue
        (ledger.take if nbytes >= 0 else ledger.give_back)(owner, tier, abs(nbytes))
        expected[owner, tier] = balance + nbytes
    for (owner, tier), balance in expected.items():
        assert ledger.held(owner, tier) == balance
    for tier in Tier:
        assert ledger.total(tier) == sum(balance for (_, where), balance in expected.items() if where is tier)


def test_a_difference_of_one_byte_is_an_error_with_both_numbers() -> None:
    ledger = Ledger()
    ledger.take("vae", Tier.DEVICE, 512)
    ledger.take("vae", Tier.PINNED, 4096)
    ledger.check(512)
    with pytest.raises(LedgerError, match="512 bytes of weights on the device, the allocator 513"):
        ledger.check(513)
