"""Frontiers of small records, solved once."""

from __future__ import annotations

from pathlib import Path

import pytest

from stowplan_agent.report.frontier import Frontier, frontier
from stowplan_agent.report.sizes import GIB, even_sizes
from stowplan_api.record import CalibrationRecord

RECORDS = Path(__file__).parents[1] / "planning" / "records"


@pytest.fixture(scope="session")
def image_record() -> CalibrationRecord:
    """An image model of 24.2 GiB on a card of 31.4 GiB, one rank."""
    return CalibrationRecord.read(RECORDS / "hard-1-keep-or-die-31gib.json")


@pytest.fixture(scope="session")
def image_frontier(image_record: CalibrationRecord) -> Frontier:
    """From too small to all resident."""
    return frontier(image_record, even_sizes(2 * GIB, 40 * GIB, 12))
