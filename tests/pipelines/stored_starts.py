"""A cold start that left a file, and starts that find it: what the tests of warm starts share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from starts import Start, begin, settings_of, start
from stowplan_agent.lifecycle import StartSettings
from stowplan_agent.lifecycle.switch import KillSwitch
from stowplan_agent.lifecycle.warm_start import StoredStart
from stowplan_api.residency_placement import Phase

COLD = ["Inventory", "Load", "Warm", "Probe", "WarmAgain", "Solve", "Apply", "Validate"]
WARM = ["Inventory", "Load", "Warm", "Revalidate"]


@dataclass
class Earlier:
    """What a cold start left, and what it was."""

    path: Path
    text: str
    name: str
    output: bytes
    placement: str
    weights: int


def left_by_a_cold_start(path: Path, records: Path) -> Earlier:
    started = start(settings_into(path, records))
    try:
        assert started.phase == "Ready", started.error
        assert started.phases == COLD
        assert started.condition("Calibrated").message.endswith(f"; {records} has no stored start of this model")
        (file,) = records.iterdir()
        placement = started.startup.prepared.session.placement().canonical()
        return Earlier(path, file.read_text(), file.name, started.output(), placement, started.weights_on_device())
    finally:
        started.startup.close()


def settings_into(path: Path, records: Path, **more: object) -> StartSettings:
    environment = {"STOWPLAN_RECORD_DIR": str(records)} | dict(more.pop("environment", {}))  # type: ignore[call-overload]
    return settings_of(path, "40Mi", environment=environment, **more)  # type: ignore[arg-type]


class Starts:
    """Starts in one directory; closed in the end."""

    def __init__(self, path: Path, records: Path) -> None:
        self._path, self._records = path, records
        self._begun: list[Start] = []

    def __call__(self, phase: Phase | None = None, switch: KillSwitch | None = None, **more: object) -> Start:
        """Run a start until a phase is done, or to its end."""
        settings = settings_into(self._path, self._records, **more)
        startup, progress = begin(settings, switch=switch)
        started = Start(settings, startup, progress, "Pending")
        self._begun.append(started)
        started.phase = startup.run(until=phase)
        return started

    def close(self) -> None:
        for started in self._begun:
            started.startup.close()


def change(records: Path, alter: Callable[[StoredStart], StoredStart]) -> None:
    """Another content, with a digest that is right."""
    (path,) = records.iterdir()
    path.write_text(alter(StoredStart.parse(path.read_text(), "file")).text())
