"""RUNTIME.md 16: what a proven placement does not need goes back to the driver and to the kernel, and not before."""

from __future__ import annotations

from pathlib import Path

from pipelines.tiny_requests import PLACEMENTS, load, managed
from pipelines.watched_card import WatchedCard
from stowplan_agent.transaction import apply, difference
from stowplan_agent.weights import WeightsEngine
from stowplan_agent.weights.audit import PAGEMAP, held_bytes
from stowplan_agent.weights.ledger import Tier
from stowplan_api.placement import Placement


def go(engine: WeightsEngine, name: str) -> None:
    now = Placement(components=tuple(engine.entry(part.name) for part in engine.describe()))
    target = Placement(components=tuple(PLACEMENTS[name](part) for part in engine.describe()))
    apply(engine, difference(now, target), check=engine.check)


def test_runtime_16_a_commit_gives_locked_memory_back_to_the_driver_and_the_kernel(tiny_wan: Path) -> None:
    """Copies that nothing needs any more: unlocked one by one, and their pages gone."""
    with managed(load(tiny_wan).pipe, card := WatchedCard()) as (engine, _):
        go(engine, "streamed")
        engine.commit()
        buffers = [(buffer.tensor.data_ptr(), buffer.tensor.nbytes) for buffer in engine._host_buffers()]
        assert engine.ledger.total(Tier.PINNED) == sum(card.locked.values()) > 0
        go(engine, "resident")
        kept = engine.ledger.total(Tier.PINNED) + engine.ledger.total(Tier.PAGEABLE)
        assert kept == sum(nbytes for _, nbytes in buffers)  # until it is proven, the way back costs nothing
        engine.commit()
        assert card.locked == {}
        assert engine.ledger.total(Tier.PINNED) == engine.ledger.total(Tier.PAGEABLE) == 0
        if the_kernel_tells():
            assert sum(held_bytes(address, nbytes) for address, nbytes in buffers) == 0


def the_kernel_tells() -> bool:
    """Some sandboxes keep the page table to themselves."""
    try:
        with PAGEMAP.open("rb"):
            return True
    except OSError:
        return False
