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
from stowplan_api.residency_placement import RankStatus

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
    company = session.company
    rank = rank_status(record, reserve_bytes, peak_bytes, ledger, company.rank)
    told = company.gather("what each rank holds", rank.to_json())
    ranks = tuple(RankStatus.model_validate(one) for one in told)
    progress.facts(components=parts, ranks=ranks, resident=resident_text(parts))
    metrics = progress.metrics
    for one in ranks:
        metrics.set_device_memory(one.rank, "capacity", one.capacity_bytes)
        metrics.set_device_memory(one.rank, "reserve", one.reserve_bytes)
        metrics.set_device_memory(one.rank, "peak", one.peak_bytes)
    used = company.gather("what is used", ledger.total(Tier.DEVICE) + record.ranks[company.rank].outside_bytes)
    for number, nbytes in enumerate(used):
        metrics.set_device_memory(number, "used", nbytes)
    metrics.set_host_pinned(sum(one.pinned_bytes for one in ranks), record.nodes[0].pinnable_bytes)
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
