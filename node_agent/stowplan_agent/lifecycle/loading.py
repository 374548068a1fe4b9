"""Reading the weights straight to where the seed placement has them, and the link that they came over."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import torch

from stowplan_agent.accelerators import Accelerator
from stowplan_agent.calibration import Machine, measure_link
from stowplan_agent.lifecycle.errors import StartError
from stowplan_agent.lifecycle.limits import read_host, too_small
from stowplan_agent.lifecycle.preferences import check_fixed
from stowplan_agent.lifecycle.seed import with_pins
from stowplan_agent.lifecycle.session import Session
from stowplan_agent.lifecycle.settings import StartSettings
from stowplan_agent.lifecycle.shortfall import Shortfall
from stowplan_agent.lifecycle.survey import Survey
from stowplan_agent.pipeline import HostedPipeline, LoadError
from stowplan_agent.pipeline.completeness import check_layers
from stowplan_agent.planning import seed_placement
from stowplan_agent.weights import EntryError, WeightsEngine
from stowplan_agent.weights.adoption import AdoptionError
from stowplan_api.contract import PlacementReason
from stowplan_api.placement import Placement
from stowplan_api.record import Link

_log = logging.getLogger(__name__)
LINK_SHARE: Final = 8
"""The link is measured with at most this part of the device's free memory."""


@dataclass(frozen=True)
class Loaded:
    """A pipeline under management, in its seed placement."""

    session: Session
    seed: Placement
    link: Link
    machine: Machine
    """The limits, with what the driver refused to lock."""


def load(survey: Survey, settings: StartSettings, stop: Callable[[], bool]) -> Loaded:
    """Load the pipeline. Raises `StartError` naming what is bad, or what is short, with nothing locked any more."""
    engine = WeightsEngine(survey.accelerator)
    try:
        return _load(survey, settings, stop, engine)
    except BaseException as error:
        engine.close()
        if isinstance(error, (LoadError, AdoptionError, EntryError, OSError)):
            raise StartError(PlacementReason.MODEL_INVALID, str(error)) from error
        if isinstance(error, torch.OutOfMemoryError):
            shortfall = Shortfall.of(error, "loading")
            raise too_small(shortfall, survey.checkpoint.name, survey.machine) from error
        raise


def _load(survey: Survey, settings: StartSettings, stop: Callable[[], bool], engine: WeightsEngine) -> Loaded:
    accelerator, machine, spec = survey.accelerator, survey.machine, settings.spec
    pipeline = HostedPipeline.load(survey.checkpoint.path, spec.model.dtype, accelerator.device)
    check_layers(survey.found, pipeline.modules())
    engine.adopt(
        pipeline.modules(),
        lambda parts: seed_placement(parts, ranks=1, host_bytes=machine.host_bytes),
        converted_from=pipeline.deferred.source_of,
    )
    pipeline.deferred.settle_all()  # what only a fixed component has
    check_fixed(spec.residency.prefer, engine.describe())
    pipeline.rewrite_within(lambda: engine.rewriting(read_host(settings).headroom))
    session = Session(accelerator, pipeline, engine, stop=stop)
    machine = _heeding_refused_locks(engine, machine)
    link = measure_link(accelerator, budget_bytes=_room(accelerator) // LINK_SHARE)
    seed = with_pins(session.placement(), engine.describe(), machine.pinnable_bytes)
    for entry in seed.components:
        engine.place(entry)
    return Loaded(session, seed, link, machine)


def _heeding_refused_locks(engine: WeightsEngine, machine: Machine) -> Machine:
    """A driver that locks less than the host has is the limit of every plan."""
    locked = engine.lockable_bytes(machine.pinnable_bytes)
    if locked is None:
        return machine
    _log.warning("the driver locks no more than %d bytes of host memory", locked)
    return replace(machine, pinnable_bytes=min(machine.pinnable_bytes, locked))


def _room(accelerator: Accelerator) -> int:
    return max(0, accelerator.capacity_bytes() - accelerator.outside_bytes() - accelerator.counters().allocated)
