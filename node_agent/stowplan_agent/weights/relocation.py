"""A component goes from where its units are to other roles: in which order things are made, released and acquired.

Host copies are made first, for they are the way back as well; then everything leaves that is to leave; then the rest
comes. So the peak of a move is the larger of its two ends. Where several ranks have units in shards, before the move or
after it, they make it in step: a failure of one is a failure of all at the same point, and they go back in step too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from stowplan_agent.accelerators import Accelerator
from stowplan_agent.weights.device_copies import load_all
from stowplan_agent.weights.entry import Roles, roles_of
from stowplan_agent.weights.host_copies import make_host_copies
from stowplan_agent.weights.keyed_units import KeyedUnits
from stowplan_agent.weights.ledger import Ledger
from stowplan_agent.weights.neighbours import Neighbours
from stowplan_agent.weights.shards import ShardedUnits
from stowplan_agent.weights.unit import Unit
from stowplan_api.placement import ComponentPlacement


class Relocation:
    """Moves the units of one component."""

    def __init__(
        self,
        owner: str,
        module: torch.nn.Module,
        accelerator: Accelerator,
        ledger: Ledger,
        neighbours: Neighbours | None = None,
    ) -> None:
        """Nothing has been moved yet."""
        self.sharded = ShardedUnits(owner, accelerator, ledger, neighbours)
        self.out_of_shards = False
        """Whether what an entry has in shards is in host memory, all the same."""
        self._owner = owner
        self._module = module
        self._accelerator = accelerator
        self._ledger = ledger
        self._neighbours = neighbours

    def roles(self, entry: ComponentPlacement, component: KeyedUnits, rank: int) -> Roles:
        """The roles of the component's units under an entry that it can have."""
        roles = roles_of(entry, component.loose, component.groups, rank)
        return replace(roles, sharded=()) if self.out_of_shards else roles

    def meet(self, roles: Roles) -> None:
        """Before `go`, and not on the way back: where shards are involved, all ranks come together."""
        if roles.sharded or self.sharded:
            self.sharded.meet()

    def go(self, component: KeyedUnits, roles: Roles) -> None:
        """Let every unit play its role. After an error `go` to the roles of before undoes what was done.

        Raises torch.OutOfMemoryError, and what the driver and the reading of files raise.
        """
        units = list(component.units())
        permanent, sharded = set(roles.permanent), set(roles.sharded)
        in_step = bool(sharded or self.sharded)
        self.sharded.forget()
        leaving = [unit for unit in units if unit not in permanent]
        gone = [unit for unit in units if unit in self.sharded and unit not in sharded]
        # What goes into shards is read from its files if it comes from them; what is there stays there.
        copied = [unit for unit in leaving if unit not in sharded or (unit.source is None and unit not in self.sharded)]
        copied += [unit for unit in gone if unit in permanent]
        make_host_copies(self._owner, copied, roles.pinned, self._accelerator, self._ledger, self._neighbours)
        self.sharded.give_back(gone)
        if in_step:
            self.sharded.all_do(lambda: self._move(units, leaving, roles))
        else:
            self._move(units, leaving, roles)
        self.sharded.take(roles.sharded, component, self._module)

    def _move(self, units: Sequence[Unit], leaving: Sequence[Unit], roles: Roles) -> None:
        for unit in leaving:
            unit.release()
        for wanted in (False, True):  # unlock before locking, for the same reason
            for unit in units:
                if unit.host is not None and (unit in roles.pinned) is wanted:
                    unit.host.set_pinned(wanted)
        load_all(roles.permanent)
