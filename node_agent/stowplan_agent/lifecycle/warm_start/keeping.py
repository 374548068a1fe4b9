"""What a start that proved a plan of its own leaves for the next: measured once more, in one step, and written down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from stowplan_agent.lifecycle.preparation import Prepared
from stowplan_agent.lifecycle.settings import StartSettings
from stowplan_agent.lifecycle.warm_start.key import fingerprint_of
from stowplan_agent.lifecycle.warm_start.revalidation import calls_of
from stowplan_agent.lifecycle.warm_start.stored_start import StepReference, StoredStart
from stowplan_agent.transaction import Measured
from stowplan_agent.weights import Timeline
from stowplan_agent.weights.ledger import Tier
from stowplan_agent.weights.timeline import Stretch
from stowplan_api.conditions import timestamp
from stowplan_api.placement import Placement
from stowplan_api.residency_placement import PlanStatus


def measure_step(prepared: Prepared, settings: StartSettings) -> Measured:
    """One step at full shape in the placement in force. Raises torch.OutOfMemoryError, and `Stopped`."""
    shape = settings.spec.workload.shapes[0].model_copy(update={"steps": 1})
    return prepared.session.measure(shape, Timeline(prepared.step_calls))


def stored_start(
    facts: Mapping[str, str],
    prepared: Prepared,
    placement: Placement,
    plan: PlanStatus,
    *,
    proof: Measured,
    step: Measured,
    bounded_digest: str,
    now: datetime | None = None,
) -> StoredStart:
    """The document. ``proof`` is what validation measured of the reference's own request, ``step`` of one step."""
    reference = StepReference(
        steps=prepared.reference_shape.steps,
        digest=prepared.reference.digest,
        seconds=prepared.reference.seconds,
        peak_bytes=proof.peak_bytes,
        reserved_peak_bytes=proof.reserved_peak_bytes,
        calls=calls_of(prepared.reference_calls),
    )
    return StoredStart(
        fingerprint=fingerprint_of(facts),
        facts=dict(facts),
        proven_at=timestamp(now or datetime.now(UTC)),
        record=prepared.record,
        as_run=prepared.as_run,
        placement=placement,
        plan=plan,
        pinned_bytes=prepared.session.engine.ledger.total(Tier.PINNED),
        reference=reference,
        step=_step(step, prepared.step_calls),
        bounded_digest=bounded_digest,
    )


def _step(measured: Measured, calls: Sequence[Stretch]) -> StepReference:
    assert measured.seconds is not None
    return StepReference(
        steps=1,
        digest=measured.digest,
        seconds=measured.seconds,
        peak_bytes=measured.peak_bytes,
        reserved_peak_bytes=measured.reserved_peak_bytes,
        calls=calls_of(calls),
    )
