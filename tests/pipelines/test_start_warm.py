"""A start that reuses what an earlier one proved: straight there, proven again."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.stored_starts import WARM, Earlier, Starts


def test_a_match_is_loaded_straight_to_and_proven(until: Starts, earlier: Earlier) -> None:
    started = until()
    assert (started.phase, started.phases) == ("Ready", WARM)
    conditions = {condition.type: (condition.status, condition.reason) for condition in started.status.conditions}
    assert conditions == {
        "Calibrated": ("True", "Reused"),
        "Applied": ("True", "StoredPlacement"),
        "Validated": ("True", "Proven"),
        "RolledBack": ("False", "NoRollback"),
        "Ready": ("False", "Starting"),
    }
    session = started.startup.prepared.session
    assert session.placement().canonical() == earlier.placement
    session.check()
    assert started.weights_on_device() == earlier.weights
    assert sum(part.device_bytes for part in started.status.components) == earlier.weights
    assert started.output() == earlier.output
    assert started.status.validation is not None and started.status.validation.bit_equal
    assert started.status.plan is not None
    # Measured beside what the same step took when it was proven: the same thing, so the same numbers.
    assert started.metric("predicted_peak_bytes") == started.metric("measured_peak_bytes")
    assert started.metric("predicted_seconds") == pytest.approx(started.metric("measured_seconds"))
    card = "Emulated 40 MiB"
    assert started.metric("placement_info", plan=started.status.plan.id, device=card, uuid="", product=card) == 1


def test_a_reused_placement_can_be_recalled_like_any_other(until: Starts, earlier: Earlier) -> None:
    started = until()
    assert started.startup.serves_a_plan
    assert started.startup.recall() == "RolledBack"
    prepared = started.startup.prepared
    assert prepared.session.placement() == prepared.seed
    assert started.weights_on_device() == 0
    assert started.output() == earlier.output
    assert started.startup.warm_start.stored is None


def test_nothing_is_put_into_the_seed_placement_on_the_way(until: Starts, earlier: Earlier) -> None:
    started = until("Load")
    session = started.startup.preparation.session
    assert session.placement().canonical() == earlier.placement
    assert session.engine.ledger.streamed_bytes <= earlier.weights


def test_a_read_only_directory_warms_as_well(until: Starts, records: Path) -> None:
    records.chmod(0o555)
    try:
        assert until().phases == WARM
    finally:
        records.chmod(0o755)


def test_the_kill_switch_is_older_than_any_file(until: Starts, earlier: Earlier) -> None:
    started = until(environment={"STOWPLAN_DISABLE_AUTO_RESIDENCY": "1"})
    assert started.phase == "Ready"
    assert "Revalidate" not in started.phases
    assert started.condition("Applied").reason == "ResidencyDisabled"
    assert started.weights_on_device() == 0
