"""The phases before a plan: inventory, load, warm, probe, warm again. They end with a record and a reference.

Everything is loaded into the seed placement, which needs least of the device. At most two bounded and, with validation,
two full-shape requests are run. Where the declared shape does not fit even so, lighter ones are measured and the record
is extrapolated from them: the planner then says what is short.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import torch

from stowplan_agent import inventory
from stowplan_agent.calibration import disagreeing, marked
from stowplan_agent.lifecycle.errors import StartError
from stowplan_agent.lifecycle.foreseen import Foresight
from stowplan_agent.lifecycle.limits import device_reserve, too_small
from stowplan_agent.lifecycle.loading import Loaded, load
from stowplan_agent.lifecycle.measuring import record_of
from stowplan_agent.lifecycle.probe import Probe, Probed
from stowplan_agent.lifecycle.session import Session, stretches_of
from stowplan_agent.lifecycle.settings import StartSettings
from stowplan_agent.lifecycle.shapes import bounded
from stowplan_agent.lifecycle.shortfall import Shortfall
from stowplan_agent.lifecycle.survey import Survey, take_survey
from stowplan_agent.transaction import Reference
from stowplan_agent.weights.timeline import Stretch
from stowplan_api.diffusion_deployment import Shape
from stowplan_api.placement import Placement
from stowplan_api.record import CalibrationRecord


ADAPTIVE_SHARE: Final = 4
"""Activations that differ by less than this part of the reserve are no reason to keep more of it."""


@dataclass(frozen=True)
class Prepared:
    """What the phases after the probe build on."""

    session: Session
    record: CalibrationRecord
    seed: Placement
    reference: Reference
    reference_shape: Shape
    """What the reference ran: the declared shape in a few steps, or the lighter one that was measured instead."""
    reference_calls: Sequence[Stretch]
    """What that request called."""


class Preparation:
    """Runs the phases in order, each a method; holds what they leave for one another."""

    def __init__(self, settings: StartSettings, stop: Callable[[], bool] = lambda: False) -> None:
        """Nothing is touched yet. ``stop`` ends a request between two steps."""
        self._settings = settings
        self._stop = stop
        self._survey: Survey | None = None
        self._loaded: Loaded | None = None
        self._prepared: Prepared | None = None

    @property
    def survey(self) -> Survey:
        """Device, headers and limits, once the inventory was taken."""
        assert self._survey is not None, "Inventory comes before whatever needs a checkpoint"
        return self._survey

    @property
    def loaded(self) -> Loaded:
        """The pipeline in its seed placement, once it was loaded."""
        assert self._loaded is not None, "Load comes before whatever needs a session"
        return self._loaded

    @property
    def prepared(self) -> Prepared:
        """The result, once the probe has run."""
        assert self._prepared is not None, "Probe comes before whatever needs a record"
        return self._prepared

    @property
    def checkpoint(self) -> inventory.Checkpoint:
        """The checkpoint's headers and configs, once the inventory was taken."""
        return self.survey.checkpoint

    @property
    def session(self) -> Session:
        """The loaded pipeline, once it was loaded."""
        return self.loaded.session

    def take_inventory(self) -> None:
        """Headers, configs and limits; refuse what cannot work before a weight is read."""
        self._survey = take_survey(self._settings)

    def load(self) -> None:
        """Read the weights straight into the seed placement."""
        self._loaded = load(self.survey, self._settings, self._stop)
        contract, loaded = self.survey.contract, self.loaded
        foresight = Foresight(loaded.session, contract, loaded.link, loaded.machine)
        self._probe = Probe(loaded.session, contract, loaded.link, foresight)

    def warm(self) -> None:
        """One bounded request, lighter ones if it runs out of memory."""
        self._tried(self._probe.warm(bounded(self._settings.spec.workload.shapes[0], self.survey.contract)))

    def probe(self) -> None:
        """Every declared shape once; where memory runs out, lighter ones, and what follows from them."""
        probed = [self._tried(self._probe.measure(shape)) for shape in self._settings.spec.workload.shapes]
        first = probed[0]
        assert first.measured.seconds is not None
        self._prepared = Prepared(
            session=self.session,
            record=record_of(self.survey, self.loaded, self._settings, probed),
            seed=self.loaded.seed,
            reference=Reference(first.measured.digest, first.measured.seconds),
            reference_shape=first.shape,
            reference_calls=stretches_of(first.watched),
        )

    def warm_again(self) -> None:
        """The bounded request once more, so that serving starts from a serving-shaped allocator."""
        shape = bounded(self.prepared.reference_shape, self.survey.contract)
        try:
            _, again = self.session.watch(shape, self.loaded.link)
        except torch.OutOfMemoryError as error:
            raise self._too_small(Shortfall.of(error, "warming up again", shape)) from error
        if (before := self._probe.warmed) is not None and before.shape == shape:
            slack = device_reserve(self.loaded.machine) // ADAPTIVE_SHARE
            adaptive = disagreeing(before.watched, again, slack_bytes=slack)
            self._prepared = replace(self.prepared, record=marked(self.prepared.record, adaptive))

    def close(self) -> None:
        """Give the device and the pipeline back, however far the start came."""
        if self._loaded is not None:
            self._loaded.session.engine.close()
        if self._survey is not None:
            self._survey.accelerator.close()

    def _tried(self, outcome: Probed | Shortfall) -> Probed:
        if isinstance(outcome, Shortfall):
            raise self._too_small(outcome)
        return outcome

    def _too_small(self, shortfall: Shortfall) -> StartError:
        return too_small(shortfall, self.checkpoint.name, self.loaded.machine)
