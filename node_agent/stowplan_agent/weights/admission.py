"""Which components are new to an engine, and whether they may come in: nothing is changed or read until all may.

What is asked of one component alone is in `adoption`; here is what is asked of all of them together.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import torch

from stowplan_agent.accelerators import Accelerator
from stowplan_agent.weights.adoption import AdoptionError, check_apart, survey, take_over
from stowplan_agent.weights.component import ManagedComponent
from stowplan_agent.weights.entry import Seed
from stowplan_agent.weights.hooks import Hooks, Listener
from stowplan_agent.weights.ledger import Ledger
from stowplan_agent.weights.loading.files import MappedFiles
from stowplan_agent.weights.loading.source import ConvertedFrom, Origin
from stowplan_agent.weights.neighbours import Neighbours
from stowplan_api.placement import ComponentPlacement


def admit(
    modules: Mapping[str, torch.nn.Module],
    managed: Mapping[str, ManagedComponent],
    accelerator: Accelerator,
    ledger: Ledger,
    converted_from: ConvertedFrom,
    neighbours: Neighbours | None = None,
) -> dict[str, ManagedComponent]:
    """Those of ``modules`` that are not ``managed`` yet, by name, where the library left them.

    A module under several names has the first. Raises `AdoptionError` naming what cannot be managed.
    """
    _check_names(managed, modules)
    known = {component.module: name for name, component in managed.items()}
    for name, module in modules.items():
        known.setdefault(module, name)
    with ThreadPoolExecutor(1) as kernel:  # it takes as long to say what is mapped as the survey does
        files = kernel.submit(MappedFiles)
        surveys = {name: survey(name, module) for module, name in known.items()}
        check_apart(surveys)
        origin = Origin(converted_from, files.result())
    return {
        name: take_over(found, accelerator, ledger, origin, neighbours)
        for name, found in surveys.items()
        if name not in managed
    }


def destinations(
    new: Mapping[str, ManagedComponent], seed: Seed, accelerator: Accelerator
) -> dict[str, ComponentPlacement]:
    """Where new components are to be loaded to, by name; the device hears of it where that is the device."""
    entries = {entry.name: entry for entry in seed([part.describe() for part in new.values()]).components}
    if any(entries[name].mode != "Offload" for name in new):
        accelerator.expect_fills()
    return entries


def bring_in(
    component: ManagedComponent, listener: Listener, accelerator: Accelerator, entry: ComponentPlacement, rank: int
) -> Hooks:
    """Hook a new component and load it to where its entry says: both, or neither. Raises as `place` does."""
    hooks = Hooks(component.name, component.module, listener, accelerator.device)
    hooks.install(component.lengths())
    try:
        component.place(entry, rank)
    except BaseException:
        hooks.remove()
        raise
    return hooks


def _check_names(components: Mapping[str, ManagedComponent], modules: Mapping[str, torch.nn.Module]) -> None:
    """Refuse a second module under a name that has one. Raises `AdoptionError`."""
    for name, module in modules.items():
        if name in components and components[name].module is not module:
            raise AdoptionError(f"component {name} is another module than the one of that name; give it another name")
