"""The gate opens for this pod, this boot and this generation only: the whole table, and how it is written."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from observations import NOW, ago, deployment_of_user, placement, pod

from stowplan_operator.decide.gate import Gate, GateReason, gate_patch, judge
from stowplan_operator.metrics import Metrics
from stowplan_operator.placement import view as view_placement
from stowplan_operator.pod import view as view_pod

DD = deployment_of_user()
RUNNING = view_pod(pod(DD, started=300))


@pytest.mark.parametrize(
    ("pod_state", "placement_state", "reason"),
    [
        ({}, {}, GateReason.PLACEMENT_VALIDATED),
        ({}, None, GateReason.PLACEMENT_MISSING),
        ({}, {"pod_uid": "another"}, GateReason.PLACEMENT_MISSING),
        ({"started": None}, {}, GateReason.CONTAINER_NOT_RUNNING),
        ({"containerStatuses": []}, {}, GateReason.CONTAINER_NOT_RUNNING),
        ({}, {"started": None}, GateReason.AGENT_SILENT),
        ({}, {"validated": None}, GateReason.AGENT_SILENT),
        ({}, {"started": 301}, GateReason.EARLIER_BOOT),
        ({}, {"started": 300}, GateReason.PLACEMENT_VALIDATED),
        ({}, {"validated": "False"}, GateReason.NOT_VALIDATED),
        ({}, {"validated": "Unknown"}, GateReason.NOT_VALIDATED),
        ({}, {"generation": 2, "validated_for": 1}, GateReason.OTHER_GENERATION),
        ({}, {"generation": 1, "validated_for": 2}, GateReason.OTHER_GENERATION),
        ({}, {"phase": "Bogus"}, GateReason.AGENT_SILENT),
    ],
)
def test_table(pod_state: dict[str, Any], placement_state: dict[str, Any] | None, reason: GateReason) -> None:
    report = None if placement_state is None else view_placement(placement(**placement_state))
    gate = judge(view_pod(pod(DD, **pod_state)), report)
    assert gate.reason is reason
    assert gate.open is (reason is GateReason.PLACEMENT_VALIDATED)


def test_every_combination_opens_only_for_all_of_uid_boot_generation_and_validated() -> None:
    for uid, boot, generation, validated, running in itertools.product((True, False), repeat=5):
        report = placement(
            pod_uid="pod-uid" if uid else "another",
            started=290 if boot else 310,
            validated_for=1 if generation else 2,
            validated="True" if validated else "False",
        )
        gate = judge(view_pod(pod(DD, started=300 if running else None)), view_placement(report))
        assert gate.open is (uid and boot and generation and validated and running)


def test_a_validated_rollback_opens_too() -> None:
    back = {"type": "RolledBack", "status": "True", "reason": "TooSlow", "lastTransitionTime": ago(10)}
    gate = judge(RUNNING, view_placement(placement(conditions=(back,))))
    assert gate.open
    assert gate.reason is GateReason.PLACEMENT_ROLLED_BACK


def test_a_placement_that_is_being_deleted_proves_nothing() -> None:
    raw = placement()
    raw["metadata"]["deletionTimestamp"] = ago(1)
    assert judge(RUNNING, view_placement(raw)).reason is GateReason.PLACEMENT_MISSING


def test_a_patch_carries_the_uid_and_no_condition_but_ours() -> None:
    patch = gate_patch(view_pod(pod(DD, gate=None)), Gate(True, GateReason.PLACEMENT_VALIDATED, "proven"), NOW)
    assert patch is not None
    assert patch.body == {
        "metadata": {"uid": "pod-uid", "resourceVersion": "1"},
        "status": {
            "conditions": [
                {
                    "type": "stowplan.dev/placement-validated",
                    "status": "True",
                    "reason": "PlacementValidated",
                    "message": "proven",
                    "lastTransitionTime": ago(0),
                }
            ]
        },
    }


def test_nothing_is_written_when_the_gate_says_it_already() -> None:
    raw = pod(DD)
    gate = judge(view_pod(raw), view_placement(placement()))
    first = gate_patch(view_pod(raw), gate, NOW)
    assert first is not None
    raw["status"]["conditions"][-1] = first.body["status"]["conditions"][0]
    assert gate_patch(view_pod(raw), gate, NOW) is None


@pytest.mark.parametrize(("was", "moved"), [("True", True), ("False", False)])
def test_the_transition_time_moves_only_when_the_status_flips(was: str, moved: bool) -> None:
    patch = gate_patch(view_pod(pod(DD, gate=was)), Gate(False, GateReason.NOT_VALIDATED, "m"), NOW)
    assert patch is not None
    written = patch.body["status"]["conditions"][0]["lastTransitionTime"]
    assert written == (ago(0) if moved else ago(60))


@pytest.mark.parametrize("over", [{"phase": "Failed"}, {"phase": "Succeeded"}])
def test_a_pod_that_is_over_is_left_alone(over: dict[str, Any]) -> None:
    assert gate_patch(view_pod(pod(DD, **over)), Gate(False, GateReason.NOT_VALIDATED, "m"), NOW) is None


@pytest.mark.parametrize(
    ("seconds", "count", "total"),
    [(0.4, 1, 0.4), (-3.0, 1, 0.0), (3600.0, 1, 3600.0), (2024 * 365 * 86_400.0, 0, 0.0)],
)
def test_a_latency_that_cannot_be_is_not_counted(seconds: float, count: int, total: float) -> None:
    metrics = Metrics()
    metrics.gate_opened(seconds)
    assert metrics.registry.get_sample_value("stowplan_operator_gate_latency_seconds_count") == count
    assert metrics.registry.get_sample_value("stowplan_operator_gate_latency_seconds_sum") == total
