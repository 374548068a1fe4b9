"""A rewrite: the one time that modules and weights under management change. All of it, or nothing.

While it lasts nothing visits the device, so each weight is in one place. Adapters are loaded by whoever wants to, and
their tensors join the layers that they are in; fusing happens on the device (`workbench`). At its end the units are
those of the modules as they are then (`renewal`), in the same placement. After an exception, whether of the caller or
of the end, modules are as they were (`structure`), and so is every byte that was changed through a tuner.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from stowplan_agent.accelerators import Accelerator
from stowplan_agent.weights.adoption import check_apart, survey
from stowplan_agent.weights.component import ManagedComponent
from stowplan_agent.weights.fixed import FixedComponent
from stowplan_agent.weights.ledger import Ledger
from stowplan_agent.weights.neighbours import Neighbours
from stowplan_agent.weights.rewriting.headroom import Headroom
from stowplan_agent.weights.rewriting.in_step import InStep
from stowplan_agent.weights.rewriting.renewal import changes, check_headroom, entry_of_grown, renew
from stowplan_agent.weights.rewriting.structure import Structure
from stowplan_agent.weights.rewriting.tuners import on_bench
from stowplan_agent.weights.rewriting.workbench import Workbench
from stowplan_api.placement import ComponentPlacement


@contextmanager
def rewrite(
    components: Mapping[str, ManagedComponent],
    accelerator: Accelerator,
    ledger: Ledger,
    rank: int,
    host_headroom: int | None,
    neighbours: Neighbours | None = None,
) -> Iterator[None]:
    """See the module, and `WeightsEngine.rewriting`. Nothing visits, and no permanent unit keeps a host copy.

    Of fixed components only the structure is put back: adapters of weights that stay on the device are put beside them,
    and counted with them.
    """
    headroom = Headroom(host_headroom)
    in_step = InStep(components.values(), rank, neighbours)
    in_step.begin(headroom)
    before = [Structure(component.module) for component in components.values()]
    fixed = [part for part in components.values() if isinstance(part, FixedComponent)]
    components = {name: part for name, part in components.items() if not isinstance(part, FixedComponent)}
    bench = Workbench(components, accelerator, ledger, headroom)
    entries = {name: component.entry for name, component in components.items()}
    try:
        with on_bench(components, bench, accelerator.running):
            yield
        _renew_all(components, {}, rank, accelerator, ledger, headroom)
        for part in fixed:
            part.recount()
        in_step.finish()
    except BaseException as error:
        in_step.fail(error)
        bench.sweep()
        for structure in before:
            structure.restore()
        for part in fixed:
            part.recount()
        for component in components.values():
            for unit in component.units():
                for view, own in unit.bound():
                    view.place.tensor.data = own
        kept = {name: entry for name, entry in entries.items() if entry is not None}
        _renew_all(components, kept, rank, accelerator, ledger, Headroom(None))
        bench.undo()
        in_step.settle()
        raise
    bench.forget()


def _renew_all(
    components: Mapping[str, ManagedComponent],
    entries: Mapping[str, ComponentPlacement],
    rank: int,
    accelerator: Accelerator,
    ledger: Ledger,
    headroom: Headroom,
) -> None:
    """Everything that can be refused is refused before the first unit changes."""
    surveys = {name: survey(name, part.module, part.lengths()) for name, part in components.items()}
    check_apart(surveys)
    changed = {name: changes(components[name], found) for name, found in surveys.items()}
    surveys.clear()  # it holds tensors' modules
    for name, component in components.items():
        check_headroom(component, changed[name], headroom)
    for name, component in components.items():
        entry = entries.get(name) or entry_of_grown(component, changed[name], rank)
        renew(component, changed[name], entry, rank, accelerator, ledger)
