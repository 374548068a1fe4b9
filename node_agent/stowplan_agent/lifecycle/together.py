"""The start of one rank among several: the same phases, each step of them agreed on by all.

Until the weights lie in the seed placement ranks simply meet. From there on every change is a round of the agreement
(`ranks.agreement`): all measure, rank 0 chooses from what all have measured, all apply it, all prove it, all make it
final, or all go back. What the agreement holds to be in force is a placement and whether it is proven: it begins with
the seed placement, unproven, and after a rollback a second round proves that. Whatever stays unproven is not served.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from stowplan_agent.lifecycle.errors import RollbackFailed, StartError
from stowplan_agent.lifecycle.first_failure import Failure, first_failure
from stowplan_agent.lifecycle.joining import with_record_of_all
from stowplan_agent.lifecycle.phases import SERVING, Outcome
from stowplan_agent.lifecycle.progress import Progress
from stowplan_agent.lifecycle.settings import StartSettings
from stowplan_agent.lifecycle.startup import Startup
from stowplan_agent.lifecycle.switch import THROWN, KillSwitch
from stowplan_agent.lifecycle.target import Target
from stowplan_agent.pipeline.request import Stopped
from stowplan_agent.ranks.agreement.delegate import AgreementEnded, Delegate, Works
from stowplan_agent.ranks.agreement.messages import Step
from stowplan_agent.ranks.company import Company
from stowplan_agent.ranks.errors import RanksError
from stowplan_agent.transaction import difference
from stowplan_api.contract import PlacementReason
from stowplan_api.placement import Placement
from stowplan_api.residency_placement import Phase

UNDONE: Final[frozenset[Phase]] = frozenset({"Apply", "Validate"})
"""Phases after whose failure there is a placement to go back to and to prove again."""


class StartTogether(Startup):
    """One rank's start. `run` and `recall` return the same phase on all ranks."""

    def __init__(
        self,
        settings: StartSettings,
        progress: Progress,
        company: Company,
        *,
        stop: Callable[[], bool] = lambda: False,
        switch: KillSwitch | None = None,
    ) -> None:
        """Nothing runs yet."""
        super().__init__(settings, progress, stop=stop, switch=switch)
        self._company = company
        self._delegate: Delegate | None = None
        self._lost: Exception | None = None
        """Why the weights of this rank are nowhere that is known."""
        self._failed: Failure | None = None
        """Of this rank in the round that runs."""
        self._cause: tuple[Phase, StartError] | None = None
        """The first failure of any rank in the last round that was rolled back."""

    def run(self, *, until: Phase | None = None) -> Phase:
        """Run all phases; returns the end that was reached. ``until`` is not for several ranks.

        Raises `RollbackFailed` where this process must end, and `Stopped`.
        """
        with self._ending_with_the_others():
            return self._start()

    def _start(self) -> Phase:
        if not (self._all_do("Inventory") and self._all_do("Load")):
            self._finish("Failed")
            return "Failed"
        seed = self.preparation.loaded.seed
        seat = self._company.seat
        self._delegate = Delegate(
            self._company.rank, seat.control, {"placement": seed.to_json(), "proven": False}, doing=seat.doing
        )
        self._interruptions.overtaken = self._delegate.interrupt
        agreed = self._agree(self._first_round())
        end: Phase = "Ready" if agreed["proven"] else "Failed"
        if end == "Failed" and self._cause is not None and self._cause[0] in UNDONE:
            end = self._prove_seed(self._cause[1])
        self._finish(end)
        return end

    def recall(self) -> Phase:
        """As of one rank, agreed on by all. Where the seed placement cannot be proven nothing serves."""
        failure = StartError(PlacementReason.RESIDENCY_DISABLED, f"{THROWN} while the plan served")
        self._work.prepare_recall(failure)
        with self._ending_with_the_others():
            end = self._prove_seed(failure)
            self._finish(end)
        return end

    @contextmanager
    def _ending_with_the_others(self) -> Iterator[None]:
        """Ranks that do not come any more are over: so is this one."""
        try:
            yield
        except RanksError as error:
            if self._interruptions.stop():
                raise Stopped from None
            raise RollbackFailed(PlacementReason.FAILED, str(error)) from error

    def _all_do(self, phase: Phase) -> bool:
        """A phase in which nothing is agreed on but whether it went well; whether it did, on all ranks."""
        self._heed_stop()
        try:
            self._try(phase)
            self._company.most(f"{phase} is done", 0)
        except (StartError, RanksError):
            _, self._work.failure = first_failure(self._company, self._failed, has_target=False)
            return False
        return True

    def _first_round(self) -> Works:
        return {
            Step.MEASURE: lambda _: self._measure(),
            Step.SOLVE: lambda _: self._solve(),
            Step.APPLY: self._apply,
            Step.VALIDATE: lambda _: self._try("Validate", self._prove),
            Step.COMMIT: lambda _: self._work.adjustment.settle(),
            Step.ROLL_BACK: self._roll_back,
        }

    def _prove_seed(self, failure: StartError) -> Phase:
        """A round whose target is the seed placement: gone to where it is not in force, and proven again."""
        seed = self.prepared.seed

        def target(_: Any) -> Any:
            return {"placement": seed.to_json(), "proven": True}

        def apply(body: Any) -> Any:
            if difference(self.prepared.session.placement(), seed):
                self._try("RollBack", lambda: self._work.adjustment.go_back(failure))
            return body

        works = {
            **self._first_round(),
            Step.MEASURE: lambda _: None,
            Step.SOLVE: target,
            Step.APPLY: apply,
            Step.VALIDATE: lambda _: self._try("RollBack", lambda: self._work.adjustment.prove_again(failure)),
        }
        agreed = self._agree(works)
        return "RolledBack" if agreed["proven"] and agreed["placement"] == seed.to_json() else "Failed"

    def _agree(self, works: Works) -> Any:
        assert self._delegate is not None, "weights are loaded before anything is agreed on"
        self._failed, self._cause = None, None
        try:
            agreed = self._delegate.agree(works)
        except AgreementEnded as error:
            self._progress.finish("Failed", str(self._lost or error))
            raise RollbackFailed(PlacementReason.FAILED, str(self._lost or error)) from error
        self._heed_stop()
        return agreed

    def _measure(self) -> str:
        for phase in ("Warm", "Probe"):
            self._try(phase)
        return str(self._try("WarmAgain", self._warm_again))

    def _warm_again(self) -> str:
        """From here on the record of each rank is that of all."""
        self._work.do("WarmAgain")
        prepared = with_record_of_all(self._company, self.prepared)
        self.preparation.take_over(prepared)
        return prepared.record.canonical()

    def _solve(self) -> Any:
        self._try("Solve")
        target = self._work.adjustment.target
        return {
            "placement": target.placement.to_json(),
            "proven": True,
            "reason": str(target.reason),
            "note": target.note,
            "kept": target.kept,
        }

    def _apply(self, body: Any) -> Any:
        placement = Placement.from_json(body["placement"], source="the target")
        if self._company.rank > 0:
            self._work.adjust(Target(placement, PlacementReason(body["reason"]), note=body["note"], kept=body["kept"]))
        if difference(self.prepared.session.placement(), placement):
            self._try("Apply")
            if difference(self.prepared.session.placement(), placement):
                failure = StartError(PlacementReason.RESIDENCY_DISABLED, f"{THROWN}: the seed placement is served")
                self._failed = time.monotonic(), "Apply", failure
                raise failure
        return body

    def _prove(self) -> None:
        self._work.adjustment.prove()

    def _roll_back(self, body: Any) -> Any:
        """Learn from all ranks why; leave what was begun, and go back where anything was moved."""
        self._cause = first_failure(self._company, self._failed, has_target=self._work.has_target)
        self._company.reopen()
        phase, failure = self._cause
        self._work.failure = failure
        if self._lost is not None:
            raise self._lost
        if phase in UNDONE:
            try:
                self._try("RollBack", lambda: self._work.adjustment.go_back(failure))
            except RollbackFailed:
                raise
            except StartError as hopeless:  # nothing was moved, and nothing else would fit
                self._cause = "RollBack", hopeless
        return body

    def _try(self, phase: Phase, work: Callable[[], Any] | None = None) -> Any:
        """A phase, whose failure is the answer of this rank. Returns what ``work`` does."""
        done: list[Any] = []

        def attempt() -> Outcome:
            done.append(None if work is None else work())
            return Outcome.DONE

        try:
            outcome = self._attempt(phase, None if work is None else attempt)
        except RollbackFailed as error:
            self._lost = error
            self._failed = time.monotonic(), phase, StartError(error.reason, str(error))
            raise
        if outcome is Outcome.FAILED:
            assert self.error is not None, "a phase that failed says why"
            self._failed = time.monotonic(), phase, self.error
            raise self.error
        return done[0] if done else None

    def _finish(self, phase: Phase) -> None:
        super()._finish(phase)
        self._company.seat.doing("serving" if phase in SERVING else "waiting for its end, for nothing was proven")

    def _heed_stop(self) -> None:
        if self._interruptions.stop():
            raise Stopped
