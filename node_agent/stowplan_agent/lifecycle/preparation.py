"""The phases before a plan: inventory, load, warm, probe, warm again. They end with a record and a reference.

Everything is loaded into the seed placement, which needs least of the device. At most two bounded requests are run, and
at full shape one of each declared shape; validation adds one, and one step of the heaviest. Where a declared shape does
not fit even so, lighter ones are measured, the record is extrapolated from them, and the planner says what is short.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import torch

from stowplan_agent import collector, inventory
from stowplan_agent.calibration import disagreeing, marked
from stowplan_agent.lifecycle.errors import StartError
from stowplan_agent.lifecycle.foreseen import Foresight
from stowplan_agent.lifecycle.limits import device_reserve, too_small
from stowplan_agent.lifecycle.loading import Choose, Loaded, into_seed, load
from stowplan_agent.lifecycle.measuring import as_run, record_of
from stowplan_agent.lifecycle.probe import Probe, Probed
from stowplan_agent.lifecycle.session import Session, stretches_of
from stowplan_agent.lifecycle.settings import StartSettings
from stowplan_agent.lifecycle.shapes import bounded, work
from stowplan_agent.lifecycle.shortfall import Shortfall
from stowplan_agent.lifecycle.survey import Survey, take_survey
from stowplan_agent.transaction import Reference
from stowplan_agent.weights import Timeline
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
    as_run: CalibrationRecord
    """Of the reference's own request, in its few steps: what a proof, which runs the same, is compared with."""
    seed: Placement
    reference: Reference
    reference_shape: Shape
    """What the reference ran: the declared shape in a few steps, or the lighter one that was measured instead."""
    reference_calls: Sequence[Stretch]
    """What that request called."""
    step_calls: Mapping[str, Sequence[Stretch]] = field(default_factory=dict)
    """What one step calls, by declared shape that was measured at full size; empty where nobody asks."""


class Preparation:
    """Runs the phases in order, each a method; holds what they leave for one another."""

    def __init__(self, settings: StartSettings, stop: Callable[[], bool] = lambda: False) -> None:
        """Nothing is touched yet."""
        self.stop = stop
        """Asked after each step of a request: true ends it with `Stopped`."""
        self.settings = settings
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
        with collector.paused():  # the pipeline's libraries are imported here
            self._survey = take_survey(self.settings)

    def load(self, choose: Choose | None = None) -> None:
        """Read the weights straight to where ``choose`` has them; where it has no opinion, to the seed placement."""
        with collector.paused():
            self._loaded = load(self.survey, self.settings, self._stopped, choose)
        if choose is None:
            self.settle()
        collector.freeze()

    def settle(self) -> None:
        """Put everything into the seed placement, from wherever it is: here a start begins to measure."""
        self._loaded, link = into_seed(self.loaded, self.survey)
        contract, machine = self.survey.contract, self.loaded.machine
        self._link = link
        self._probe = Probe(self.session, contract, link, Foresight(self.session, contract, link, machine))

    def warm(self) -> Shape:
        """One bounded request, lighter ones if it runs out of memory; the one that ran."""
        return self._tried(self._probe.warm(self._bounded())).shape

    def warm_as_loaded(self) -> tuple[Shape, str]:
        """The bounded request in whatever placement there is: its shape, and the digest of its output.

        Raises torch.OutOfMemoryError.
        """
        shape = self._bounded()
        return shape, self.session.measure(shape, Timeline()).digest

    def probe(self) -> None:
        """Every declared shape once; where memory runs out, lighter ones, and what follows from them."""
        probed = [self._tried(self._probe.measure(shape)) for shape in self.settings.spec.workload.shapes]
        first = probed[0]
        assert first.measured.seconds is not None
        record = record_of(self.survey, self.loaded, self.settings, self._link, probed)
        self._prepared = Prepared(
            session=self.session,
            record=record,
            as_run=as_run(record, self.loaded, first.shape, first.watched),
            seed=self.loaded.seed,
            reference=Reference(first.measured.digest, first.measured.seconds),
            reference_shape=first.shape,
            reference_calls=stretches_of(first.watched),
            step_calls=self._step_calls(probed),
        )

    def warm_again(self) -> str:
        """The bounded request once more, so that serving starts from a serving-shaped allocator; its digest."""
        shape = bounded(self.prepared.reference_shape, self.survey.contract)
        try:
            measured, again = self.session.watch(shape, self._link)
        except torch.OutOfMemoryError as error:
            raise self._too_small(Shortfall.of(error, "warming up again", shape)) from error
        if (before := self._probe.warmed) is not None and before.shape == shape:
            slack = device_reserve(self.loaded.machine) // ADAPTIVE_SHARE
            adaptive = disagreeing(before.watched, again, slack_bytes=slack)
            self._prepared = replace(self.prepared, record=marked(self.prepared.record, adaptive))
        return measured.digest

    def take_over(self, prepared: Prepared) -> None:
        """What an earlier start measured, in place of measuring."""
        self._prepared = prepared

    def close(self) -> None:
        """Give the device and the pipeline back, however far the start came."""
        if self._loaded is not None:
            self._loaded.session.engine.close()
        if self._survey is not None:
            self._survey.accelerator.close()
        collector.thaw()

    def _bounded(self) -> Shape:
        return bounded(self.settings.spec.workload.shapes[0], self.survey.contract)

    def _step_calls(self, probed: Sequence[Probed]) -> Mapping[str, Sequence[Stretch]]:
        """To prove one step later, what it calls must be known: of the heaviest shape, or for a start that is kept."""
        shapes = self.settings.spec.workload.shapes
        if len(shapes) == 1 and self.settings.record_dir is None:
            return {}
        return {
            shape.name: stretches_of(self._probe.with_steps(one, 1).observations)
            for shape, one in zip(shapes, probed, strict=True)
            if work(one.shape) == work(shape)
        }

    def _stopped(self) -> bool:
        return self.stop()

    def _tried(self, outcome: Probed | Shortfall) -> Probed:
        if isinstance(outcome, Shortfall):
            raise self._too_small(outcome)
        return outcome

    def _too_small(self, shortfall: Shortfall) -> StartError:
        return too_small(shortfall, self.checkpoint.name, self.loaded.machine)
