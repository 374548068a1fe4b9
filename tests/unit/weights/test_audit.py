"""The ledger against the kernel's own count of pages: an error on either side is found."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest
import torch
from torch import nn

from stowplan_agent.weights import LedgerError, WeightsEngine, audit
from stowplan_agent.weights.audit import held_bytes
from stowplan_agent.weights.host import HUGE_PAGE, take_arena, whole_pages
from stowplan_agent.weights.ledger import Ledger, Tier
from unit.weights.stacks import emulated_card, layerwise, offload, resident

MIB = 1 << 20


def large() -> nn.Module:
    """16 layers of 4 MiB: the bound is then well below what a layer weighs."""
    module = nn.Module()
    module.layers = nn.ModuleList(nn.Linear(1024, 1024, bias=False) for _ in range(16))
    return module


def test_the_kernel_counts_what_the_ledger_counts_through_every_placement() -> None:
    with emulated_card() as card, torch.no_grad():
        engine = WeightsEngine(card)
        engine.adopt({"part": large()})
        for entry in (
            resident(),
            layerwise({"layers": 4}, pinned=5),
            offload(pinned=20 * MIB),
            layerwise({"layers": 9}),
        ):
            engine.place(entry)
            engine.check()
            engine.commit()
            engine.check()
        engine.close()
        engine.check()


@pytest.mark.parametrize("tier", [Tier.PINNED, Tier.PAGEABLE])
def test_bytes_without_an_owner_are_found(tier: Tier) -> None:
    with emulated_card() as card, torch.no_grad():
        engine = WeightsEngine(card)
        engine.adopt({"part": large()})
        engine.ledger.take("part", tier, 1)
        with pytest.raises(LedgerError, match=f"ledger says .* {tier} bytes, and host copies have"):
            engine.check()


def test_pages_that_are_not_there_are_found() -> None:
    with emulated_card() as card, torch.no_grad():
        engine = WeightsEngine(card)
        engine.adopt({"part": large()})
        unit = engine._components["part"].groups["layers"][0]
        untouched = take_arena("part", [unit.nbytes], card, Ledger())
        unit.host.tensor = untouched[0].tensor
        with pytest.raises(LedgerError, match="the kernel holds"):
            engine.check()


@pytest.mark.parametrize("nbytes", [1, 4096, 4097, 3 * MIB, 40 * MIB + 5])
def test_pages_are_counted_one_by_one(nbytes: int) -> None:
    with emulated_card() as card:
        (buffer,) = take_arena("part", [nbytes], card, Ledger())
        address = buffer.tensor.data_ptr()
        assert held_bytes(address, nbytes) == 0
        buffer.tensor[0] = 1
        assert mmap.PAGESIZE <= held_bytes(address, nbytes) <= HUGE_PAGE
        buffer.tensor.fill_(1)
        assert held_bytes(address, nbytes) == whole_pages(nbytes)


def test_a_kernel_that_keeps_its_page_table_to_itself_is_believed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(audit, "PAGEMAP", tmp_path / "none")
    assert held_bytes(0, 5000) == 8192
