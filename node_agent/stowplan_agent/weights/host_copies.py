"""Making host copies of several units at once: all of them or none.

What comes from a source (the files, on first placement) is filled in parallel, and each copy that is to be pinned is
registered beside the filling of the rest; what is on the device is read back.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from stowplan_agent.accelerators import Accelerator
from stowplan_agent.weights.host import take_arena
from stowplan_agent.weights.ledger import Ledger
from stowplan_agent.weights.loading.filling import fill_all
from stowplan_agent.weights.neighbours import Neighbours
from stowplan_agent.weights.unit import Unit


def make_host_copies(
    owner: str,
    units: Iterable[Unit],
    pinned: Container[Unit],
    accelerator: Accelerator,
    ledger: Ledger,
    neighbours: Neighbours | None = None,
) -> None:
    """A host copy, in one arena, for each unit that has bytes and lacks one. Raises with none of them made.

    With ``neighbours`` all ranks meet, but for none that is lacking: a rank that goes back from a move that failed on
    it alone lacks none, and the others are elsewhere.
    """
    lacking = [unit for unit in units if unit.nbytes and unit.host is None]
    if not lacking:
        return
    if neighbours is not None:
        _make_with_all(owner, lacking, pinned, neighbours)
        return
    copies = take_arena(owner, [unit.nbytes for unit in lacking], accelerator, ledger)
    kept = dict(zip(lacking, copies, strict=True))
    loading = [unit for unit in lacking if unit.source is not None]

    def filled(index: int) -> None:
        if loading[index] in pinned:
            kept[loading[index]].set_pinned(True)

    try:
        fill_all([(unit.source, kept[unit].tensor) for unit in loading if unit.source is not None], filled)
        for unit in lacking:
            if unit.source is None:
                unit.read_back(kept[unit])
    except BaseException:
        for copy in copies:
            copy.drop()
        raise
    for unit, copy in kept.items():
        unit.keep(copy)


def _make_with_all(owner: str, lacking: Sequence[Unit], pinned: Container[Unit], neighbours: Neighbours) -> None:
    """The same for all ranks together: one copy of what is the same on all of them."""
    store = neighbours.store
    copies = store.take(owner, [unit.nbytes for unit in lacking], [neighbours.contents(unit) for unit in lacking])
    kept = dict(zip(lacking, copies, strict=True))
    loading = [(unit, unit.source) for unit in lacking if unit.source is not None]

    def filled(index: int) -> None:
        if loading[index][0] in pinned:
            kept[loading[index][0]].set_pinned(True)

    try:
        store.fill([(source, kept[unit]) for unit, source in loading], filled)
        settled = [unit for unit in lacking if unit.source is None]
        store.read_back(
            [(unit.on_device() if unit.shard is None else unit.shard, kept[unit]) for unit in settled],
        )
        store.settle(copies)
    except BaseException:
        store.abandon(copies)
        raise
    for unit, copy in kept.items():
        unit.keep(copy)
