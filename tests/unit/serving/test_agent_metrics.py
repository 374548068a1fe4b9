"""The text that a scraper reads: names and labels of KUBERNETES.md, base units, nothing stale."""

from __future__ import annotations

import pytest
from prometheus_client import generate_latest

from stowplan_agent.serving.metrics import AgentMetrics, ComponentBytes
from stowplan_api.contract import PlacementReason


def sample(metrics: AgentMetrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def test_every_fact_is_found_under_its_name() -> None:
    metrics = AgentMetrics()
    metrics.set_device_memory(0, "capacity", 80 << 30)
    metrics.set_components({"vae": ComponentBytes(device=5, pinned=6, pageable=7)})
    metrics.set_host_pinned(held=3, budget=9)
    metrics.set_phase_duration("Load", 1.5)
    metrics.set_validated(True)
    metrics.set_placement(plan="p1", device="cuda:0", uuid="GPU-1", product="H200")
    metrics.set_predicted(seconds=2.5, peak_bytes=10)
    metrics.set_measured(seconds=2.75, peak_bytes=11)
    metrics.count_rollback(PlacementReason.TOO_SLOW)
    assert sample(metrics, "stowplan_device_memory_bytes", rank="0", kind="capacity") == 80 << 30
    assert sample(metrics, "stowplan_component_bytes", component="vae", tier="pageable") == 7
    assert sample(metrics, "stowplan_host_pinned_bytes") == 3
    assert sample(metrics, "stowplan_host_pin_budget_bytes") == 9
    assert sample(metrics, "stowplan_phase_duration_seconds", phase="Load") == 1.5
    assert sample(metrics, "stowplan_placement_validated") == 1
    assert sample(metrics, "stowplan_predicted_seconds") == 2.5
    assert sample(metrics, "stowplan_measured_seconds") == 2.75
    assert sample(metrics, "stowplan_predicted_peak_bytes") == 10
    assert sample(metrics, "stowplan_measured_peak_bytes") == 11
    assert sample(metrics, "stowplan_rollbacks_total", reason="TooSlow") == 1


def test_a_new_placement_replaces_the_old_one() -> None:
    metrics = AgentMetrics()
    for plan, component in (("p1", "text_encoder"), ("p2", "vae")):
        metrics.set_placement(plan=plan, device="cuda:0", uuid="GPU-1", product="H200")
        metrics.set_components({component: ComponentBytes(1, 0, 0)})
    text = generate_latest(metrics.registry).decode()
    assert 'plan="p2"' in text and 'plan="p1"' not in text
    assert 'component="vae"' in text and "text_encoder" not in text


def test_streaming_totals_only_grow_even_when_the_engine_begins_again() -> None:
    metrics = AgentMetrics()
    for total in (100, 250, 250, 40):
        metrics.set_streamed(total)
    assert sample(metrics, "stowplan_streamed_bytes_total") == 290


def test_seconds_of_a_request_are_told_by_component_and_waits_add_up() -> None:
    metrics = AgentMetrics()
    for seconds in (4.0, 6.0):
        metrics.observe_stages({"transformer": seconds, "vae": 1.0}, waited=0.5)
    assert sample(metrics, "stowplan_request_stage_seconds_sum", component="transformer") == 10.0
    assert sample(metrics, "stowplan_request_stage_seconds_count", component="vae") == 2
    assert sample(metrics, "stowplan_stream_wait_seconds_total") == pytest.approx(1.0)


def test_every_way_a_request_ends_is_there_from_the_start() -> None:
    metrics = AgentMetrics()
    for status in ("completed", "failed", "out_of_memory", "cancelled", "refused", "rejected"):
        assert sample(metrics, "stowplan_requests_total", status=status) == 0


def test_requests_are_told_apart_by_declared_shape_and_by_nothing_else() -> None:
    metrics = AgentMetrics()
    metrics.set_shapes({(832, 480, 81): "clip", (1280, 720, 81): "wide"})
    for width in (832, 832, 640, 648, 656):
        metrics.observe_request(12.0, (width, 480, 81))
    assert sample(metrics, "stowplan_request_duration_seconds_bucket", le="20.0", shape="clip") == 2
    assert sample(metrics, "stowplan_request_duration_seconds_sum", shape="other") == 36.0
    assert sample(metrics, "stowplan_request_duration_seconds_count", shape="wide") == 0


def test_two_agents_in_one_process_do_not_meet() -> None:
    first, second = AgentMetrics(), AgentMetrics()
    first.count_request("completed")
    assert sample(second, "stowplan_requests_total", status="completed") == 0
