"""What a start that proved a plan of its own leaves for the next: the proof and its one step, written down."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from stowplan_agent.lifecycle.heaviest import Step
from stowplan_agent.lifecycle.preparation import Prepared
from stowplan_agent.lifecycle.settings import StartSettings
from stowplan_agent.lifecycle.warm_start.key import fingerprint_of
from stowplan_agent.lifecycle.warm_start.revalidation import calls_of
from stowplan_agent.lifecycle.warm_start.stored_start import StepReference, StoredStart
from stowplan_agent.transaction import Measured
from stowplan_agent.weights.ledger import Tier
from stowplan_agent.weights.timeline import Stretch
from stowplan_api.conditions import timestamp
from stowplan_api.diffusion_deployment import Shape
from stowplan_api.residency_placement import PlanStatus

_log = logging.getLogger(__name__)


class Keeper:
    """Gathers, phase by phase, what a stored start is made of."""

    def __init__(self, settings: StartSettings, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        """Nothing is known yet."""
        self.bounded_digest = ""
        """Of the bounded request's output in this start, once it ran in the seed placement."""
        self._spec = settings.spec
        self._now = now

    def document(
        self, facts: Mapping[str, str], prepared: Prepared, plan: PlanStatus, proof: Measured, step: Step
    ) -> StoredStart | None:
        """The stored start of the placement in force; None where another start could not judge by it.

        ``proof`` is what validation measured of the reference's own request, ``step`` that of the heaviest shape.
        """
        if self._spec.residency.validation.reproducible and proof.digest != prepared.reference.digest:
            _log.info("nothing is kept for the next start: this model does not repeat its output")
            return None
        seconds = prepared.reference.seconds
        return StoredStart(
            fingerprint=fingerprint_of(facts),
            facts=dict(facts),
            proven_at=timestamp(self._now()),
            record=prepared.record,
            as_run=prepared.as_run,
            placement=prepared.session.placement(),
            plan=plan,
            pinned_bytes=prepared.session.engine.ledger.total(Tier.PINNED),
            reference=_reference(
                prepared.reference_shape, prepared.reference.digest, seconds, proof, prepared.reference_calls
            ),
            step=_reference(step.shape, step.measured.digest, step.measured.seconds or 0.0, step.measured, step.calls),
            bounded_digest=self.bounded_digest,
        )


def _reference(shape: Shape, digest: str, seconds: float, peaks: Measured, calls: Sequence[Stretch]) -> StepReference:
    return StepReference(
        shape=shape.name,
        steps=shape.steps,
        digest=digest,
        seconds=seconds,
        peak_bytes=peaks.peak_bytes,
        reserved_peak_bytes=peaks.reserved_peak_bytes,
        calls=calls_of(calls),
    )
