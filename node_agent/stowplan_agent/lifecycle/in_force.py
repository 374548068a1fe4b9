"""What is done about a placement once it was proven: it is made final, and it is reported from the ledger."""

from __future__ import annotations

from typing import Final

from stowplan_agent.lifecycle.errors import StartError
from stowplan_agent.lifecycle.facts import component_status, rank_status, resident_text
from stowplan_agent.lifecycle.progress import Progress
from stowplan_agent.lifecycle.session import Session
from stowplan_agent.serving.metrics import ComponentBytes
from stowplan_agent.transaction import Faults
from stowplan_agent.weights.ledger import Tier
from stowplan_api.contract import PlacementReason
from stowplan_api.record import CalibrationRecord

SEED: Final = "seed"
"""What stands for the id of a plan where no plan chose the placement."""


def make_final(session: Session, faults: Faults) -> None:
    """Give back what the placement does not need. Raises `StartError`, with the rest still held."""
    try:
        with faults.within("commit"):
            session.engine.commit()
            session.check()
    except Exception as error:
        raise StartError(PlacementReason.APPLY_FAILED, f"committing the placement failed: {error}") from error


def report(
    progress: Progress,
    session: Session,
    record: CalibrationRecord,
    *,
    plan: str,
    reserve_bytes: int,
    peak_bytes: int,
) -> None:
    """Status and metrics of the placement in force. ``plan`` is its id; ``peak_bytes`` was measured by its proof."""
    engine, ledger = session.engine, session.engine.ledger
    parts = tuple(component_status(part, engine.entry(part.name), ledger) for part in record.components)
    rank = rank_status(record, reserve_bytes, peak_bytes, ledger)
    progress.facts(components=parts, ranks=(rank,), resident=resident_text(parts))
    metrics = progress.metrics
    metrics.set_device_memory(0, "capacity", rank.capacity_bytes)
    metrics.set_device_memory(0, "reserve", rank.reserve_bytes)
    metrics.set_device_memory(0, "peak", rank.peak_bytes)
    metrics.set_device_memory(0, "used", ledger.total(Tier.DEVICE) + record.ranks[0].outside_bytes)
    metrics.set_host_pinned(ledger.total(Tier.PINNED), record.nodes[0].pinnable_bytes)
    metrics.set_components(
        {
            part.name: ComponentBytes(
                ledger.held(part.name, Tier.DEVICE),
                ledger.held(part.name, Tier.PINNED),
                ledger.held(part.name, Tier.PAGEABLE),
            )
            for part in record.components
        }
    )
    facts = session.accelerator.facts
    uuid = facts.uuid if facts and facts.uuid else ""
    metrics.set_placement(plan=plan, device=rank.device, uuid=uuid, product=rank.device)
