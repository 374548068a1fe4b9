"""After modules have changed: the units of a component become those of a new survey, one at a time.

A unit whose tensors are the same, and where it put them, stays. Any other is succeeded by a unit of the tensors that
belong there now, filled from wherever each of them lies: the old unit's memory, or the library's. The layer goes
through one host copy even where it is on the device for good, since the device need not have room for two. What must
hold: at every moment, and after a failure at any of them, each tensor of the tree is valid and each byte has one owner.
"""

from __future__ import annotations

from collections.abc import Sequence

from stowplan_agent.accelerators import Accelerator
from stowplan_agent.weights.adoption import Survey
from stowplan_agent.weights.component import ManagedComponent
from stowplan_agent.weights.host import take_arena
from stowplan_agent.weights.keyed_units import UnitKey
from stowplan_agent.weights.layout import Block, block_offsets
from stowplan_agent.weights.ledger import Ledger
from stowplan_agent.weights.loading.filling import fill_all
from stowplan_agent.weights.rewriting.headroom import Headroom
from stowplan_agent.weights.unit import Unit
from stowplan_api.placement import ComponentPlacement

Changes = dict[UnitKey, tuple[Block, ...]]


def changes(component: ManagedComponent, found: Survey) -> Changes:
    """The units that are no longer what they were, and what belongs to them now."""
    return {key: found.blocks(key) for key, unit in component.items() if not _is_of(unit, found.blocks(key))}


def check_headroom(component: ManagedComponent, changed: Changes, headroom: Headroom) -> None:
    """Raises `RewriteError` where the host has no room for the new bytes and the largest unit's passing through."""
    sizes = {key: block_offsets(blocks)[1] for key, blocks in changed.items()}
    growth = sum(
        max(0, nbytes - component.unit(key).nbytes)
        for key, nbytes in sizes.items()
        if component.unit(key).device is None
    )
    headroom.check(component.name, growth + max(sizes.values(), default=0), "taking over the changed layers")
    headroom.take(component.name, growth, "taking over the changed layers")


def renew(
    component: ManagedComponent,
    changed: Changes,
    entry: ComponentPlacement,
    rank: int,
    accelerator: Accelerator,
    ledger: Ledger,
) -> None:
    """Let the changed units be succeeded, and bring the component to its entry.

    Raises what the driver raises, and OSError; what has been succeeded by then stays so.
    """
    for key, blocks in changed.items():
        old = component.unit(key)
        on_device = old.device is not None
        new = _filled(component.name, blocks, accelerator, ledger)
        _part(old)
        component.replace(key, new)
        old.abandon()
        if on_device:
            new.load()
            new.arrive()
            new.drop_host_copy()
    component.resume(entry, rank)


def entry_of_grown(component: ManagedComponent, changed: Changes, rank: int) -> ComponentPlacement:
    """The component's entry, its pinned bytes counting the same units as before at the sizes that they have now."""
    entry = component.entry
    assert entry is not None, "a component is placed when it is adopted"
    if entry.pinned_bytes is None:
        return entry
    total, share = component.total_bytes(), entry.pinned_bytes[rank]
    for key, blocks in changed.items():
        unit = component.unit(key)
        growth = block_offsets(blocks)[1] - unit.nbytes
        total += growth
        if unit.host is not None and unit.host.pinned:
            share += growth
    shares = [*entry.pinned_bytes]
    shares[rank] = min(share, total)
    return entry.model_copy(update={"pinned_bytes": tuple(shares)})


def _is_of(unit: Unit, blocks: Sequence[Block]) -> bool:
    """Whether a unit's tensors are those of the blocks, where and as it has bound them."""
    now = {(place.module, place.name, id(place.tensor)) for block in blocks for place in block.places}
    bound = unit.bound()
    if now != {(view.place.module, view.place.name, id(view.place.tensor)) for view, _ in bound}:
        return False
    return all(
        view.place.tensor.data_ptr() == own.data_ptr()
        and view.place.tensor.dtype == own.dtype
        and view.place.tensor.shape == own.shape
        and view.place.tensor.stride() == own.stride()
        for view, own in bound
    )


def _filled(owner: str, blocks: Sequence[Block], accelerator: Accelerator, ledger: Ledger) -> Unit:
    unit = Unit(owner, blocks, accelerator, ledger)
    if unit.nbytes and unit.source is not None:
        (buffer,) = take_arena(owner, [unit.nbytes], accelerator, ledger)
        try:
            fill_all([(unit.source, buffer.tensor)])
        except BaseException:
            buffer.drop()
            raise
        unit.keep(buffer)
    unit.settle()
    return unit


def _part(unit: Unit) -> None:
    """Tensors that went to no other unit take their bytes along: the memory that they lie in is about to go."""
    for view, own in unit.bound():
        if view.place.tensor.data_ptr() == own.data_ptr():
            view.place.tensor.data = own.to("cpu", copy=True)
