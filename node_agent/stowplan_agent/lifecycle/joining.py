"""From what one rank has measured to the record of all, which every rank works out for itself from the same words."""

from __future__ import annotations

from dataclasses import replace

from stowplan_agent.lifecycle.joint_record import joined
from stowplan_agent.lifecycle.preparation import Prepared
from stowplan_agent.ranks.company import Company
from stowplan_api.record import CalibrationRecord


def with_record_of_all(company: Company, prepared: Prepared) -> Prepared:
    """What was prepared, with records of all ranks in place of this rank's own. All ranks meet.

    Raises `RanksError` where they have not run the same.
    """
    rates = company.gather("peer rates", company.peer_rate)

    def of_all(name: str, record: CalibrationRecord) -> CalibrationRecord:
        records = company.gather(name, record.to_json())
        return joined([CalibrationRecord.from_json(one, source=name) for one in records], rates)

    record, as_run = of_all("records", prepared.record), of_all("records as run", prepared.as_run)
    return replace(prepared, record=record, as_run=as_run)
