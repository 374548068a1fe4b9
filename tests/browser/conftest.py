"""Debian's Chromium without a window, and the pages that it is shown."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from localcluster import packages
from localcluster.errors import ClusterError
from stowplan_agent.planning import seed_placement, solve, with_device_memory
from stowplan_agent.report.frontier import frontier_around
from stowplan_agent.report.page import page
from stowplan_agent.report.request import requests_of
from stowplan_agent.report.request_page import request_page
from stowplan_api.record import CalibrationRecord
from stowplan_api.residency_placement import ResidencyPlacementStatus

GIB = 1 << 30
RECORDS = Path(__file__).parents[1] / "unit" / "planning" / "records"


def chromium(log: Path) -> str:
    """The path of the browser; installed where Debian's packages can be, never left out in CI."""
    if (found := packages.program("chromium")) is not None:
        return found
    if os.geteuid() == 0 and packages.program("apt-get") is not None:
        packages.install(("chromium",), log, "This test")
        return str(packages.program("chromium"))
    if os.environ.get("CI") == "true":
        raise ClusterError("chromium is not here and cannot be installed; install Debian's package chromium.")
    pytest.skip("there is no chromium; install Debian's package chromium")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Closed with its file: as long as the driver is open, its event loop runs in the thread of all tests."""
    path = chromium(tmp_path_factory.mktemp("apt") / "log")
    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Files: a request with all sections, one that does not fit, and a frontier."""
    folder = tmp_path_factory.mktemp("pages")
    record = CalibrationRecord.read(RECORDS / "hard-1-keep-or-die-31gib.json")
    plan = solve(record)
    assert plan.placement is not None
    around = frontier_around(record)
    status = rolled_back(tuple(part.name for part in record.components))
    small = with_device_memory(record, GIB)
    seed = seed_placement(small.components, 1)
    made = {
        "request": request_page(requests_of(record, plan.placement, plan), status=status, frontier=around),
        "short": request_page(requests_of(small, seed, solve(small))),
        "frontier": page(around),
    }
    paths = {}
    for name, text in made.items():
        paths[name] = folder / f"{name}.html"
        paths[name].write_text(text, encoding="utf-8")
    return paths


def rolled_back(components: tuple[str, ...]) -> ResidencyPlacementStatus:
    """A start that took its plan back, with every field that a page shows."""
    phases = (("Inventory", 310), ("Load", 21_400), ("Warm", 14_200), ("Probe", 15_800), ("Solve", 420),
              ("Apply", 2_100), ("Validate", 14_300), ("RollBack", 1_900))  # fmt: skip
    return ResidencyPlacementStatus.model_validate(
        {
            "phase": "RolledBack",
            "phases": [
                {"name": name, "startedAt": "2026-11-30T12:00:00Z", "milliseconds": taken} for name, taken in phases
            ],
            "plan": {
                "id": "a1b2c3",
                "predictedMilliseconds": 13_900,
                "predictedPeakBytes": 30 * GIB,
                "explanations": [f"{name}: Resident; nothing is faster" for name in components],
            },
            "validation": {
                "milliseconds": 14_300,
                "referenceMilliseconds": 14_200,
                "peakBytes": 24 * GIB,
                "bitEqual": True,
            },
            "rollbacks": [
                {
                    "time": "2026-11-30T12:01:10Z",
                    "reason": "OutputDiffers",
                    "message": "the output differs from the reference: 4f00c2d1 and not b954b01b",
                    "from": ", ".join(f"{name} Resident" for name in components),
                    "to": ", ".join(f"{name} Offload" for name in components),
                    "measured": "peak 30.1 GiB, 13.902 s a request",
                }
            ],
        }
    )
