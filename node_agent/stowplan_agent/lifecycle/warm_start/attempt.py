"""One start's dealings with stored starts: look one up, load straight to it, prove it; and leave one for the next.

Each phase that works on a stored start gives it up where anything differs or fails: everything goes to the seed
placement, the reason is said, and the start goes on as if there had been none.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from stowplan_agent.lifecycle.errors import StartError, in_words
from stowplan_agent.lifecycle.facts import summary
from stowplan_agent.lifecycle.heaviest import Step
from stowplan_agent.lifecycle.measuring import machine_now
from stowplan_agent.lifecycle.phases import Outcome
from stowplan_agent.lifecycle.preparation import Preparation
from stowplan_agent.lifecycle.progress import Progress
from stowplan_agent.lifecycle.settings import StartSettings
from stowplan_agent.lifecycle.switch import THROWN, KillSwitch
from stowplan_agent.lifecycle.warm_start.keeping import Keeper
from stowplan_agent.lifecycle.warm_start.key import facts_of
from stowplan_agent.lifecycle.warm_start.revalidation import Revalidation, prepared_of
from stowplan_agent.lifecycle.warm_start.store import Store
from stowplan_agent.lifecycle.warm_start.stored_start import StoredStart
from stowplan_agent.lifecycle.warm_start.suitability import on_machine, other_parts, unsuitable
from stowplan_agent.pipeline.request import Stopped
from stowplan_agent.transaction import Measured
from stowplan_agent.weights.ledger import Tier
from stowplan_api.contract import PlacementCondition, PlacementReason
from stowplan_api.diffusion_deployment import Shape
from stowplan_api.placement import Placement
from stowplan_api.record import Component
from stowplan_api.residency_placement import PlanStatus

_log = logging.getLogger(__name__)


class WarmStart:
    """At most one stored start is tried."""

    def __init__(
        self, settings: StartSettings, preparation: Preparation, progress: Progress, switch: KillSwitch
    ) -> None:
        """Does nothing where no directory is set, and for a user who has the placement chosen otherwise."""
        self._settings = settings
        self._preparation = preparation
        self._progress = progress
        self._switch = switch
        auto = settings.spec.residency.mode == "Auto"
        self.store = Store(settings.record_dir) if settings.record_dir is not None and auto else None
        self.facts: dict[str, str] = {}
        """What a stored start must agree in with this one."""
        self.stored: StoredStart | None = None
        """The one that is being tried, or that proved itself."""
        self.given_up = ""
        """Why none is, in a sentence; empty where none was looked for."""
        self.warmed: Shape | None = None
        """What the stored placement was warmed up with."""
        self.keeper = Keeper(settings)
        self._revalidation: Revalidation | None = None

    def look_up(self) -> None:
        """After the inventory: find a stored start, and see whether it fits this machine's limits."""
        if self.store is None:
            return
        survey = self._preparation.survey
        self.facts = facts_of(survey, self._settings)
        found = "the kill switch is thrown" if self._switch.thrown else self.store.find(self.facts)
        if not isinstance(found, str):
            problem = unsuitable(found, survey.machine, self._settings.spec.workload.shapes)
            if problem is None:
                self.stored = found
                _log.info("a stored start of %s is tried: %s", found.proven_at, summary(found.placement))
                return
            found = f"the stored start does not fit this pod: {problem}"
        self._say(found)

    def load(self) -> Outcome:
        """Load, straight to the stored placement if there is one."""
        stored = self.stored
        if stored is None:
            self._preparation.load()
            return Outcome.DONE
        found: list[str] = []

        def choose(parts: Sequence[Component]) -> Placement | None:
            problem = other_parts(parts, stored.record.components)
            if problem is not None:
                found.append(problem)
            return None if problem is not None else stored.placement

        self._preparation.load(choose)
        session = self._preparation.session
        if found:
            self._give_up(found[0])
        elif session.placement() != stored.placement:
            self._give_up("the stored placement could not be loaded to")
        elif (locked := session.engine.ledger.total(Tier.PINNED)) < stored.pinned_bytes:
            self._give_up(
                f"the driver locked {locked} bytes of host memory, and {stored.pinned_bytes} when it was proven"
            )
        return Outcome.DONE

    def warm(self) -> Outcome:
        """The bounded request as the first proof of a stored placement; stale without one."""
        if self.stored is None:
            return Outcome.STALE
        problem = self._problem_when_warmed(self.stored)
        if problem is None:
            return Outcome.REUSED
        self._give_up(problem)
        return Outcome.STALE

    def revalidate(self) -> Outcome:
        """One step at full shape against what is stored. Raises `StartError` where not even the seed is reached."""
        stored = self.stored
        assert stored is not None, "only a stored start is revalidated"
        refuted = self._refuted(stored)
        if refuted is not None:
            if self.store is not None and refuted.reason is not PlacementReason.RESIDENCY_DISABLED:
                self.store.forget(stored.fingerprint)
            self._give_up(str(refuted))
            return Outcome.STALE
        self._progress.condition(
            PlacementCondition.CALIBRATED, "True", PlacementReason.REUSED, f"measured and proven at {stored.proven_at}"
        )
        self._progress.condition(
            PlacementCondition.APPLIED, "True", PlacementReason.STORED_PLACEMENT, summary(stored.placement)
        )
        return Outcome.DONE

    def interrupted(self, cause: Exception | None) -> Outcome:
        """What is tried was ended before its time: give it up, unless the process is to end."""
        if not isinstance(cause, StartError):
            raise Stopped
        self._give_up(str(cause))
        return Outcome.STALE

    def report(self) -> str:
        """Report the stored placement, which is final now; the proof in one sentence."""
        assert self._revalidation is not None, "Revalidate comes before Ready"
        return self._revalidation.report(self._progress)

    def keep(self, plan: PlanStatus | None, proof: Measured | None, step: Step | None) -> None:
        """Leave the plan that this start proved for the next one. Says what goes wrong, and goes on."""
        if self.store is None or plan is None or proof is None or step is None:
            return
        self.stored = self.keeper.document(self.facts, self._preparation.prepared, plan, proof, step)
        problem = self.store.keep(self.stored) if self.stored is not None else None
        if problem is not None:
            _log.warning("%s", problem)

    def _problem_when_warmed(self, stored: StoredStart) -> str | None:
        """What the bounded request says against a stored placement; nothing of a request that failed is held."""
        try:
            self.warmed, digest = self._preparation.warm_as_loaded()
        except Stopped:
            raise
        except Exception as error:  # the full sequence finds out whether the placement was to blame
            return f"the bounded request failed: {type(error).__name__}: {error}"
        if self._switch.thrown:
            return THROWN
        if self._settings.spec.residency.validation.reproducible and digest != stored.bounded_digest:
            return f"the bounded request gave {digest[:12]} and not {stored.bounded_digest[:12]}"
        return None

    def _refuted(self, stored: StoredStart) -> StartError | None:
        """Why a stored placement is not proven, holding nothing of what failed; None where it is, and is final."""
        preparation = self._preparation
        try:
            record = on_machine(stored.record, machine_now(preparation.loaded, self._settings))
            preparation.take_over(prepared_of(stored, record, preparation))
            self._revalidation = Revalidation(stored, preparation.prepared, self._settings)
            self._revalidation.prove(self._progress)
        except Stopped:
            raise
        except StartError as error:
            return StartError(error.reason, str(error))
        except Exception as error:  # nobody vouches for what a file says, nor for what comes of it
            return StartError(PlacementReason.VALIDATION_FAILED, in_words(error))
        return StartError(PlacementReason.RESIDENCY_DISABLED, THROWN) if self._switch.thrown else None

    def _give_up(self, reason: str) -> None:
        self._say(f"the stored start does not hold here: {reason}")
        self.stored = None
        self._preparation.settle()

    def _say(self, reason: str) -> None:
        self.given_up = reason
        _log.info("every phase is run: %s", reason)
        self._progress.condition(PlacementCondition.CALIBRATED, "Unknown", PlacementReason.NOT_REUSED, reason)
