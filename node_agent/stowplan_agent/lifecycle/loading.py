"""Reading the weights straight to where they are wanted: to the seed placement, or to one that was proven before."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import torch

from stowplan_agent.accelerators import Accelerator
from stowplan_agent.calibration import Machine, measure_link
from stowplan_agent.lifecycle.errors import StartError
from stowplan_agent.lifecycle.limits import rewrite_room, too_small
from stowplan_agent.lifecycle.preferences import check_fixed
from stowplan_agent.lifecycle.seed import with_pins
from stowplan_agent.lifecycle.session import Session
from stowplan_agent.lifecycle.settings import StartSettings
from stowplan_agent.lifecycle.shortfall import Shortfall
from stowplan_agent.lifecycle.survey import Survey
from stowplan_agent.pipeline import HostedPipeline, LoadError
from stowplan_agent.pipeline.completeness import check_layers
from stowplan_agent.pipeline.sequence_parallel import share_with
from stowplan_agent.planning import seed_placement
from stowplan_agent.weights import EntryError, WeightsEngine
from stowplan_agent.weights.adoption import AdoptionError
from stowplan_agent.weights.ledger import Tier
from stowplan_api.contract import PlacementReason
from stowplan_api.placement import Placement
from stowplan_api.record import Component, Link

_log = logging.getLogger(__name__)
LINK_SHARE: Final = 8
"""The link is measured with at most this part of the free memory of device and host."""
LINK_LEAST: Final = 4 << 30
"""Bytes of host memory taken to be free even where host copies leave none: a sixteenth is copied from, and that is the
least reserve."""
Choose = Callable[[Sequence[Component]], Placement | None]
"""Where components that have just been found are to be loaded to; None: to the seed placement."""


@dataclass(frozen=True)
class Loaded:
    """A pipeline under management."""

    session: Session
    machine: Machine
    """The limits; once `into_seed` was called, with what the driver refused to lock."""
    seed: Placement
    """Where a start begins to measure; everything is there once `into_seed` was called."""


def load(survey: Survey, settings: StartSettings, stop: Callable[[], bool], choose: Choose | None = None) -> Loaded:
    """Load the pipeline to where ``choose`` has it, which may raise torch.OutOfMemoryError and `EntryError`: then to
    the seed placement.

    Raises `StartError` naming what is bad, or what is short, with nothing locked any more.
    """
    company = settings.company
    neighbours = company.neighbours(survey.accelerator)
    engine = WeightsEngine(survey.accelerator, rank=company.rank, neighbours=neighbours)
    try:
        return _load(survey, settings, stop, engine, choose)
    except BaseException as error:
        engine.close()
        if (told := _start_error(error, survey)) is not None:
            raise told from error
        raise


def into_seed(loaded: Loaded, survey: Survey) -> tuple[Loaded, Link]:
    """Put everything into the seed placement, from wherever it is, and measure the link there.

    Raises `StartError` where memory is short, with every component in one of the two placements.
    """
    session, accelerator = loaded.session, loaded.session.accelerator
    try:
        machine = _heeding_refused_locks(session.engine, loaded.machine)
        pinnable = session.company.least("host memory to lock", machine.pinnable_bytes)
        machine = replace(machine, pinnable_bytes=pinnable)
        ranks = session.company.ranks
        seed = with_pins(loaded.seed, session.engine.describe(), machine.pinnable_bytes, ranks=ranks)
        link = measure_link(accelerator, budget_bytes=_link_budget(session, machine))
        for entry in seed.components:
            session.engine.place(entry)
        session.check()
    except Exception as error:
        if (told := _start_error(error, survey)) is not None:
            raise told from error
        raise
    return Loaded(session, machine, seed), link


def _load(
    survey: Survey,
    settings: StartSettings,
    stop: Callable[[], bool],
    engine: WeightsEngine,
    choose: Choose | None,
) -> Loaded:
    machine, spec = survey.machine, settings.spec
    pipeline = HostedPipeline.load(survey.checkpoint.path, spec.model.dtype, survey.accelerator.device)
    check_layers(survey.found, pipeline.modules())
    company = settings.company
    if company.ranks > 1:
        shared = share_with(
            pipeline.modules(), spec.parallelism, company.rank, company.ranks, survey.accelerator.device
        )
        company.share(survey.accelerator.device, shared.parallelism.ring, shared.parallelism.ulysses, shared.enable)

    def seed(parts: Sequence[Component]) -> Placement:
        return seed_placement(parts, ranks=company.ranks, host_bytes=machine.host_bytes)

    def adopt(where: Callable[[Sequence[Component]], Placement]) -> None:
        engine.adopt(pipeline.modules(), where, converted_from=pipeline.deferred.source_of)

    try:
        adopt(lambda parts: (choose(parts) if choose is not None else None) or seed(parts))
    except (EntryError, torch.OutOfMemoryError):
        if choose is None:
            raise
        adopt(seed)  # what is not managed yet; the rest follows from wherever it is
    pipeline.deferred.settle_all()  # what only a fixed component has
    parts = engine.describe()
    check_fixed(spec.residency.prefer, parts)
    pipeline.rewrite_within(lambda: engine.rewriting(rewrite_room(settings, survey.accelerator)))
    session = Session(survey.accelerator, pipeline, engine, stop=stop, company=company)
    return Loaded(session, machine, with_pins(seed(parts), parts, machine.pinnable_bytes, ranks=company.ranks))


def _heeding_refused_locks(engine: WeightsEngine, machine: Machine) -> Machine:
    """A driver that locks less than the host has is the limit of every plan."""
    locked = engine.lockable_bytes(machine.pinnable_bytes)
    if locked is None:
        return machine
    _log.warning("the driver locks no more than %d bytes of host memory", locked)
    return replace(machine, pinnable_bytes=min(machine.pinnable_bytes, locked))


def _link_budget(session: Session, machine: Machine) -> int:
    """Bytes with which the link is measured: a share of what is free of the device, and of the host."""
    ledger = session.engine.ledger
    free = machine.host_bytes - ledger.total(Tier.PINNED) - ledger.total(Tier.PAGEABLE)
    return min(_room(session.accelerator), max(free, LINK_LEAST)) // LINK_SHARE


def _room(accelerator: Accelerator) -> int:
    return max(0, accelerator.capacity_bytes() - accelerator.outside_bytes() - accelerator.counters().allocated)


def _start_error(error: BaseException, survey: Survey) -> StartError | None:
    """What a failure of loading is to a start: bad input, too little memory; None: what it was."""
    if isinstance(error, (LoadError, AdoptionError, EntryError, OSError)):
        return StartError(PlacementReason.MODEL_INVALID, str(error))
    if isinstance(error, torch.OutOfMemoryError):
        return too_small(Shortfall.of(error, "loading"), survey.checkpoint.name, survey.machine)
    return None
