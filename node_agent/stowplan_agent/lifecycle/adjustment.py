"""The one adjustment of a start: choose a placement, apply it, prove it; or take it back and prove the seed again.

Whatever goes wrong here ends in the seed placement, proven anew. Where that does not prove itself either nothing may
serve, and where not even the weights come back the process must end.
"""

from __future__ import annotations

from stowplan_agent.lifecycle.errors import RollbackFailed, StartError
from stowplan_agent.lifecycle.facts import plan_status, summary
from stowplan_agent.lifecycle.in_force import make_final
from stowplan_agent.lifecycle.interruption import Interruptions
from stowplan_agent.lifecycle.moving import move_to
from stowplan_agent.lifecycle.phases import Outcome
from stowplan_agent.lifecycle.preparation import Prepared
from stowplan_agent.lifecycle.progress import Progress
from stowplan_agent.lifecycle.proof import Proof
from stowplan_agent.lifecycle.proof_requests import ProofRequests
from stowplan_agent.lifecycle.settings import StartSettings
from stowplan_agent.lifecycle.switch import THROWN
from stowplan_agent.lifecycle.target import Target, nothing_fits, target_of
from stowplan_agent.pipeline.request import Stopped
from stowplan_agent.transaction import difference
from stowplan_api.conditions import shorten
from stowplan_api.contract import PlacementCondition, PlacementReason


class Adjustment:
    """The phases after the probe, each a method that returns how it ended. One a start."""

    def __init__(
        self,
        prepared: Prepared,
        settings: StartSettings,
        progress: Progress,
        interruptions: Interruptions,
        chosen: Target | None = None,
    ) -> None:
        """Everything is in the seed placement of ``prepared``; or in that of ``chosen``, which is in force already."""
        self._prepared = prepared
        self._settings = settings
        self._progress = progress
        self._interruptions = interruptions
        self._proof = Proof(prepared, settings)
        self._chosen = chosen

    @property
    def target(self) -> Target:
        """What this start is to serve, once it was chosen."""
        assert self._chosen is not None, "Solve comes before whatever needs a target"
        return self._chosen

    @property
    def moves(self) -> bool:
        """Whether this start has another placement than the seed one for its target."""
        return self._chosen is not None and self._chosen.placement != self._prepared.seed

    @property
    def proven(self) -> ProofRequests:
        """What the requests of the proof gave."""
        return self._proof.requests

    def solve(self) -> Outcome:
        """Choose the placement of this start. Raises `StartError` where the user's does not fit, or none does."""
        target = self._chosen = self._choose()
        if target.plan is not None:
            self._progress.facts(plan=plan_status(target.plan, kept=target.kept))
        if difference(self._prepared.session.placement(), target.placement):
            return Outcome.DONE
        if target.reason in (PlacementReason.PLAN_APPLIED, PlacementReason.PINNED):
            message = target.kept or "the seed placement is the plan"
            self._in_force(PlacementReason.ALREADY_OPTIMAL, message, target.note)
        return Outcome.KEEP

    def apply(self) -> Outcome:
        """Make the moves. Raises `StartError` with every one of them undone, else `RollbackFailed`."""
        if self._interruptions.switch.thrown:
            self._chosen = self._choose()
            self._plan_is_given_up(THROWN)
            return Outcome.KEEP
        target = self.target
        move_to(self._prepared, target.placement, interrupt=self._between_moves, faults=self._settings.faults)
        self._in_force(target.reason, summary(target.placement), target.note)
        return Outcome.DONE

    def validate(self) -> Outcome:
        """Prove what is in force, and make it final. Raises `StartError`."""
        try:
            self._proof.prove(self._progress, keeps=self._keeps)
        except StartError as error:
            if error.reason is not PlacementReason.OUTPUT_DIFFERS:
                raise
            self._judge_by_spread(error)
        self.settle()
        return Outcome.DONE

    def prove(self) -> None:
        """Prove what is in force, on one of several ranks: its output repeats, or it is not proven.

        Raises `StartError`.
        """
        self._proof.prove(self._progress)

    def settle(self) -> None:
        """What is in force is final. Raises `StartError`."""
        make_final(self._prepared.session, self._settings.faults)

    def roll_back(self, failure: StartError) -> Outcome:
        """Back to the seed placement, which the probe ran in; proven again before anything is served."""
        self.go_back(failure)
        self.prove_again(failure)
        try:
            self.settle()
        except StartError as error:
            message = f"rolling back failed: {error}; it was to undo this: {failure}"
            raise RollbackFailed(PlacementReason.FAILED, message) from error
        return Outcome.DONE

    def go_back(self, failure: StartError) -> None:
        """Back to the seed placement, which is not proven again yet. Raises `RollbackFailed`, and `StartError`."""
        seed, measured = self._prepared.seed, self._proof.requests.numbers()
        if self.target.reason is PlacementReason.EXTRAPOLATED:
            nothing = nothing_fits(self._prepared.record, failure)
            self._progress.condition(PlacementCondition.APPLIED, "False", nothing.reason, str(nothing))
            raise nothing
        try:
            self._settings.faults.reach("rollback")
            move_to(self._prepared, seed)
        except Exception as error:
            message = f"rolling back failed: {error}; it was to undo this: {failure}"
            raise RollbackFailed(PlacementReason.FAILED, message) from error
        given_up, kept = summary(self.target.placement), summary(seed)
        self._plan_is_given_up(f"rolled back ({failure.reason})")
        self._progress.rolled_back(failure.reason, str(failure), given_up, kept, measured)
        self._progress.condition(PlacementCondition.APPLIED, "False", failure.reason, str(failure))

    def prove_again(self, failure: StartError) -> None:
        """What was gone back to. Raises `StartError`."""
        try:
            self._prove_seed()
        except Stopped:
            raise
        except Exception as error:  # whatever it was, it is not proven
            message = f"the seed placement does not validate either: {error}; the planned one failed so: {failure}"
            raise StartError(PlacementReason.FAILED, message) from error

    def report(self, *, planned: bool) -> str:
        """Report what was proven and is final; the proof in one sentence.

        ``planned``: the target is in force, and not the seed placement after a rollback.
        """
        plan = self.target.plan if planned and not self.target.kept else None
        self._proof.report(self._progress, plan.id if plan else None)
        return self._proof.sentence()

    def _judge_by_spread(self, failure: StartError) -> None:
        """The reference once more where it was run: if it does not repeat itself, its own spread is the tolerance.

        Then the placement is gone back to, and proven anew: nothing serves that was left since it was proven. Raises
        ``failure``, in the seed placement, if it does repeat itself; `StartError` for an output that is further away.
        """
        here = self._prepared.session.placement()
        move_to(self._prepared, self._prepared.seed)
        if not self._proof.learn_spread():
            raise failure
        move_to(self._prepared, here)
        self._proof.judge(self._progress)
        if here != self._prepared.seed:
            self._proof.prove_again(self._progress)

    def _prove_seed(self) -> None:
        """Raises `StartError`. The seed placement is the reference's own: what its runs differ by is the spread.

        Its seconds are not judged. There is nothing faster to go back to, and a card that throttles, which may be why
        somebody threw the kill switch, must not shut the gate for good.
        """
        try:
            self._proof.prove(self._progress, timed=False)
        except StartError as error:
            if error.reason is not PlacementReason.OUTPUT_DIFFERS or self._prepared.session.company.ranks > 1:
                raise
            if not self._proof.knows_spread and not self._proof.learn_spread():
                raise
            if not self._proof.widen_spread():
                raise
            self._proof.judge(self._progress, timed=False)

    @property
    def _keeps(self) -> bool:
        """Whether the next start is to be left what this one proves."""
        return self._settings.record_dir is not None and self.target.plan is not None

    def _between_moves(self) -> None:
        self._interruptions.overtaken()
        if (cause := self._interruptions.now()) is not None:
            raise cause

    def _choose(self) -> Target:
        record, residency = self._prepared.record, self._settings.spec.residency
        thrown = self._interruptions.switch.thrown
        target = target_of(record, self._prepared.session.placement(), residency, disabled=thrown)
        if target.plan is None and target.kept:
            self._progress.condition(PlacementCondition.APPLIED, "False", target.reason, target.kept)
        return target

    def _plan_is_given_up(self, why: str) -> None:
        """Whatever plan the status describes: it says from now on that the seed placement is in force."""
        plan = self._progress.status.plan
        if plan is not None:
            kept = shorten(f"the seed placement is in force: {why}")
            self._progress.facts(plan=plan.model_copy(update={"kept": kept}))

    def _in_force(self, reason: PlacementReason, message: str, note: str) -> None:
        text = f"{message}; {note}" if note else message
        self._progress.condition(PlacementCondition.APPLIED, "True", reason, text)
