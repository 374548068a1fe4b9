"""What a start leaves for the next one, and when it leaves nothing: never at the price of its own success."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from starts import settings_of, start
from stowplan_agent.lifecycle import StartSettings
from stowplan_agent.lifecycle.heaviest import Step
from stowplan_agent.transaction import Measured


def keeping_in(path: Path, records: Path, **more: Any) -> StartSettings:
    """The lightest start there is, with a directory for what it leaves."""
    return settings_of(path, "40Mi", shapes=["32x32x1@1"], environment={"STOWPLAN_RECORD_DIR": str(records)}, **more)


def test_a_full_disk_does_not_fail_the_start_that_would_have_kept(
    tiny_wan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> object:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("stowplan_agent.lifecycle.warm_start.store.os.fsync", full)
    started = start(keeping_in(tiny_wan, tmp_path / "records"))
    try:
        assert started.phase == "Ready"
        assert list((tmp_path / "records").iterdir()) == []
        document = started.startup.warm_start.stored
        assert document is not None  # for whoever asks over HTTP
        assert json.loads(document.text())["fingerprint"] == document.fingerprint

        # What does not repeat itself is no reference for another start.
        warm_start, prepared = started.startup.warm_start, started.startup.prepared
        warm_start.stored = None
        other = Measured("0" * 64, prepared.reference.seconds, 1, 1)
        step = Step(started.settings.spec.workload.shapes[0], other, 1, ())
        warm_start.keep(started.status.plan, other, step)
        assert warm_start.stored is None
    finally:
        started.startup.close()


def test_a_rolled_back_and_a_static_start_leave_nothing(tiny_wan: Path, tmp_path: Path) -> None:
    records = tmp_path / "records"
    for more in ({"faults": "validate.seconds"}, {"spec": {"residency": {"mode": "Static"}}}):
        started = start(keeping_in(tiny_wan, records, **more))
        started.startup.close()
        assert started.phase in ("RolledBack", "Ready")
        assert not records.exists()


def test_without_a_directory_nothing_is_stored_and_nothing_more_is_run(tiny_wan: Path) -> None:
    started = start(settings_of(tiny_wan, "40Mi", shapes=["32x32x1@1"]))
    try:
        assert started.startup.warm_start.stored is None
        assert started.startup.prepared.step_calls == {}
    finally:
        started.startup.close()
