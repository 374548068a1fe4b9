"""Making host copies of several units at once: all of them or none.

What comes from a source (the files, on first placement) is filled in parallel, and each copy that is to be pinned is
registered beside the filling of the rest; what is on the device is read back.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from stowplan_agent.accelerators import Accelerator
from stowplan_agent.weights.host import take_arena
from stowplan_agent.weights.ledger import Ledger
from stowplan_agent.weights.loading.filling import fill_all
from stowplan_agent.weights.unit import Unit


def make_host_copies(
    owner: str, units: Iterable[Unit], pinned: Container[Unit], accelerator: Accelerator, ledger: Ledger
) -> None:
    """A host copy, in one arena, for each unit that has bytes and lacks one. Raises with none of them made."""
    lacking = [unit for unit in units if unit.nbytes and unit.host is None]
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
