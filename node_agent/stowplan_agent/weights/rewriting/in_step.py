"""A rewrite on several ranks: all of them make it or none does, and no layer is in shards while it lasts.

What is in shards is brought into the host copy that all ranks share, where it can be changed like a streamed layer, and
goes back into shards of the new bytes at the end. Every rank rewrites by itself in between; it is over once all have
said that theirs went well, and undone on all where one did not. Then what a rank has made for itself becomes one copy
of all ranks again: they must never differ in who has a layer from whom. With one rank nothing of this happens.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from stowplan_agent.weights.component import ManagedComponent
from stowplan_agent.weights.host import HostBuffer
from stowplan_agent.weights.neighbours import Neighbours
from stowplan_agent.weights.rewriting.headroom import Headroom, RewriteError
from stowplan_agent.weights.shards import HostBytes
from stowplan_agent.weights.unit import Unit


class InStep:
    """The beginning and the end of one rewrite, as all ranks make them."""

    def __init__(self, components: Iterable[ManagedComponent], rank: int, neighbours: Neighbours | None) -> None:
        """Nothing has begun."""
        self._components = list(components)
        self._rank = rank
        self._neighbours = neighbours
        self._left: list[ManagedComponent] = []
        """Those that have layers in shards again at the end."""
        self._decided = False

    def begin(self, headroom: Headroom) -> None:
        """Let no layer be in shards. Raises on all ranks as `ManagedComponent.place` does, or for lack of headroom."""
        if self._neighbours is None:
            return
        leaving = [component for component in self._components if component.relocation.sharded]

        def check() -> None:
            for component in leaving:
                nbytes = component.relocation.sharded.nbytes
                headroom.take(component.name, nbytes, "bringing layers out of their shards")

        self._neighbours.all_do("begin the rewrite", check)
        try:
            for component in leaving:
                _place(component, self._rank, out_of_shards=True)
                self._left.append(component)
        except BaseException:
            self._put_back()
            raise

    def finish(self) -> None:
        """This rank's part went well; let it be so if all ranks' did. Raises `RanksError` for another one's, on all."""
        if self._neighbours is None:
            return
        self._decided = True
        self._neighbours.all_do("rewrite the weights", lambda: None)
        self.settle()

    def fail(self, error: BaseException) -> None:
        """This rank's part did not go well: let the others know, if they do not yet."""
        if self._neighbours is None or self._decided:
            return
        self._decided = True

        def tell() -> None:
            raise RewriteError(str(error) or type(error).__name__)

        with suppress(Exception):  # of the error of this rank everybody hears; a rank that is lost ends all by itself
            self._neighbours.all_do("rewrite the weights", tell)

    def settle(self) -> None:
        """Make one copy of what is the same on all ranks, and put back into shards what was there.

        Raises on all ranks, as `ManagedComponent.place` and `StoreOfAll.take` do.
        """
        if self._neighbours is not None:
            for component in self._components:
                _share(component, self._neighbours)
        self._put_back()

    def _put_back(self) -> None:
        back: list[ManagedComponent] = []
        try:
            for component in self._left:
                _place(component, self._rank, out_of_shards=False)
                back.append(component)
        except BaseException:
            for component in back:
                _place(component, self._rank, out_of_shards=True)
            raise
        for component in back:
            component.commit()
        self._left.clear()


def _place(component: ManagedComponent, rank: int, *, out_of_shards: bool) -> None:
    """Bring what its entry has in shards to a host copy of all ranks, or back. Raises as `ManagedComponent.place`."""
    assert component.entry is not None, "a component is placed when it is adopted"
    component.relocation.out_of_shards = out_of_shards
    try:
        component.place(component.entry, rank)
    except BaseException:
        component.relocation.out_of_shards = not out_of_shards
        raise


def _share(component: ManagedComponent, neighbours: Neighbours) -> None:
    """Of every unit that some rank has a host copy of its own of: one of all, or each its own where bytes differ."""
    units = list(component.units())
    own = [at for at, unit in enumerate(units) if isinstance(unit.host, HostBuffer) and not unit.changes]
    for at in sorted(set().union(*neighbours.meet(f"{component.name}: own copies", own))):
        _share_unit(component.name, units[at], neighbours)


def _share_unit(owner: str, unit: Unit, neighbours: Neighbours) -> None:
    old = unit.host
    assert old is not None, "units have host copies on all ranks or on none"
    found: list[str] = []
    neighbours.all_do(f"know {owner}", lambda: found.append(neighbours.digest(unit)))
    (unit.identity,) = found
    (new,) = taken = neighbours.store.take(owner, [unit.nbytes], [unit.identity])
    try:
        neighbours.store.fill([(HostBytes(old.tensor), new)], lambda _: None)
        neighbours.store.settle(taken)
    except BaseException:
        neighbours.store.abandon(taken)
        raise
    unit.keep(new)
    wanted = old.pinned
    old.drop()
    new.set_pinned(wanted)
