"""How long each step may take before it counts as failed. Seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from stowplan_agent.ranks.agreement.messages import Step

SLACK: Final = 15.0
"""Seconds that a member waits beyond what the chair may: it must not give up while the chair still waits for others."""


@dataclass(frozen=True)
class Deadlines:
    """Of the chair, from its order to the last answer; for steps that run requests, the lifecycle knows better."""

    begin: float = 3600.0
    """From the first rank that is ready to the last: ranks load from one disk."""
    measure: float = 1800.0
    solve: float = 120.0
    apply: float = 600.0
    validate: float = 1800.0
    commit: float = 120.0
    roll_back: float = 1200.0
    serve: float = 60.0

    def of(self, step: Step) -> float:
        """Seconds that the chair waits for the answers to a step."""
        return {
            Step.BEGIN: self.begin,
            Step.MEASURE: self.measure,
            Step.SOLVE: self.solve,
            Step.APPLY: self.apply,
            Step.VALIDATE: self.validate,
            Step.COMMIT: self.commit,
            Step.ROLL_BACK: self.roll_back,
            Step.SERVE: self.serve,
        }[step]

    def after(self, step: Step) -> float:
        """Seconds that a member which has answered waits for the next order: the others may need all of theirs."""
        solving = self.solve if step is Step.MEASURE else 0.0
        return self.of(step) + solving + SLACK
