"""What each phase of a start does, and how it says that it ended. What comes next is for `phases` to say."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stowplan_agent.lifecycle.adjustment import Adjustment
from stowplan_agent.lifecycle.deadlines import Warmed, phase_deadlines
from stowplan_agent.lifecycle.effects import without_effect
from stowplan_agent.lifecycle.errors import StartError
from stowplan_agent.lifecycle.interruption import Interruptions
from stowplan_agent.lifecycle.phases import Outcome
from stowplan_agent.lifecycle.preparation import Preparation
from stowplan_agent.lifecycle.progress import Progress
from stowplan_agent.lifecycle.settings import StartSettings
from stowplan_agent.lifecycle.shapes import describe
from stowplan_agent.lifecycle.target import Target
from stowplan_agent.lifecycle.warm_start import WarmStart
from stowplan_agent.pipeline.request import Stopped
from stowplan_api.contract import PlacementCondition, PlacementReason
from stowplan_api.diffusion_deployment import Shape
from stowplan_api.residency_placement import Phase


class PhaseWork:
    """The work of one start."""

    def __init__(
        self, settings: StartSettings, preparation: Preparation, progress: Progress, interruptions: Interruptions
    ) -> None:
        """Nothing is done yet."""
        self.warm_start = WarmStart(settings, preparation, progress, interruptions.switch)
        self.failure: StartError | None = None
        """Why the phase that failed last did: what a rollback is to undo."""
        self._settings = settings
        self._preparation = preparation
        self._progress = progress
        self._interruptions = interruptions
        self._chosen: Adjustment | None = None
        interruptions.adjusts = lambda: self.adjustment.moves
        self._phases: Mapping[Phase, Callable[[], Outcome]] = {
            "Inventory": self._take_inventory,
            "Load": self.warm_start.load,
            "Warm": self._warm,
            "Revalidate": lambda: self._tried(self.warm_start.revalidate),
            "Probe": self._probe,
            "WarmAgain": self._warm_again,
            "Solve": self._solve,
            "Apply": lambda: self.adjustment.apply(),  # noqa: PLW0108 - there is no adjustment yet
            "Validate": self._validate,
            "RollBack": self._roll_back,
        }

    def do(self, phase: Phase) -> Outcome:
        """The work of a phase. Raises `StartError`, `Stopped`, and whatever else its work does."""
        return self._phases[phase]()

    def report(self, end: Phase) -> str:
        """What serves now: status and metrics of it; the proof in one sentence. A plan is left for the next start."""
        if self._chosen is None:
            return self.warm_start.report()
        sentence = self._chosen.report(planned=end == "Ready")
        if end == "Ready":
            proven = self._chosen.proven
            self.warm_start.keep(self._progress.status.plan, proven.last, proven.step)
        return sentence

    def prepare_recall(self, failure: StartError) -> None:
        """What serves is to be rolled back, for this reason; nor is it for the next start any more."""
        self.failure = failure
        if self._chosen is None:
            prepared = self._preparation.prepared
            stored = Target(prepared.session.placement(), PlacementReason.STORED_PLACEMENT)
            self._chosen = Adjustment(prepared, self._settings, self._progress, self._interruptions, stored)
        self.warm_start.stored = None

    def adjust(self, target: Target) -> None:
        """Another rank has chosen what this one is to serve."""
        prepared = self._preparation.prepared
        self._chosen = Adjustment(prepared, self._settings, self._progress, self._interruptions, target)

    @property
    def has_target(self) -> bool:
        """Whether a target was chosen, so that weights may have been moved."""
        return self._chosen is not None

    @property
    def adjustment(self) -> Adjustment:
        """What changes and proves the placement, once a target was chosen."""
        assert self._chosen is not None, "Solve comes before whatever adjusts"
        return self._chosen

    def _take_inventory(self) -> Outcome:
        self._preparation.take_inventory()
        for sentence in without_effect(self._settings, self._preparation.survey.accelerator.capacity_bytes()):
            self._progress.warn(sentence)
        self.warm_start.look_up()
        return Outcome.DONE

    def _warm(self) -> Outcome:
        """A stored placement is warmed up in; where there is none, or it is given up, what every start begins with."""
        stored = self.warm_start.stored is not None
        outcome = self._tried(self.warm_start.warm) if stored else Outcome.STALE
        if outcome is Outcome.REUSED:
            self._learn_deadlines(self.warm_start.warmed)
            return outcome
        if stored:
            self._interruptions.begin_again()
        self._learn_deadlines(self._preparation.warm())
        return Outcome.DONE

    def _tried(self, work: Callable[[], Outcome]) -> Outcome:
        """The outcome of work on a stored start: what is late or forbidden there is given up, and no failure."""
        try:
            outcome = work()
        except Stopped:
            return self.warm_start.interrupted(self._interruptions.last)
        cause = None if outcome is Outcome.STALE else self._interruptions.forbidden()
        return outcome if cause is None else self.warm_start.interrupted(cause)

    def _learn_deadlines(self, warmed: Shape | None) -> None:
        """The warm-up says how fast this card is: what is computed from here on may take as long as that."""
        if warmed is None:
            return
        settings, took = self._settings, Warmed(warmed, self._progress.elapsed())
        self._interruptions.lengthen(phase_deadlines(settings.spec, settings.memory_limit, settings.environment, took))

    def _probe(self) -> Outcome:
        self._preparation.probe()
        prepared = self._preparation.prepared
        if prepared.record.extrapolated:
            reason = PlacementReason.EXTRAPOLATED
            message = "; ".join(prepared.record.provenance[1:])
        else:
            reason = PlacementReason.MEASURED
            shape = describe(prepared.reference_shape)
            message = f"{shape} take {prepared.reference.seconds:.3f} s with everything streamed"
        if self.warm_start.given_up:
            message = f"{message}; {self.warm_start.given_up}"
        self._progress.condition(PlacementCondition.CALIBRATED, "True", reason, message)
        return Outcome.DONE

    def _warm_again(self) -> Outcome:
        self.warm_start.keeper.bounded_digest = self._preparation.warm_again()
        return Outcome.DONE

    def _solve(self) -> Outcome:
        prepared = self._preparation.prepared
        self._chosen = Adjustment(prepared, self._settings, self._progress, self._interruptions)
        return self._chosen.solve()

    def _validate(self) -> Outcome:
        self.adjustment.validate()
        return Outcome.DONE

    def _roll_back(self) -> Outcome:
        assert self.failure is not None, "something failed, or there is nothing to undo"
        return self.adjustment.roll_back(self.failure)
