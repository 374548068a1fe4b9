"""Both sides expose what the design lists under Metrics, the few beside it that are named here, and nothing else."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.registry import Collector

from stowplan_agent.serving.metrics import AgentMetrics, ComponentBytes, DeviceKind, RequestStatus, Tier
from stowplan_api.contract import PlacementReason
from stowplan_api.residency_placement import Phase
from stowplan_operator.metrics import Metrics

AGENT = {
    "stowplan_device_memory_bytes": ("gauge", ("rank", "kind")),
    "stowplan_component_bytes": ("gauge", ("component", "tier")),
    "stowplan_host_pinned_bytes": ("gauge", ()),
    "stowplan_host_pin_budget_bytes": ("gauge", ()),
    "stowplan_phase_duration_seconds": ("gauge", ("phase",)),
    "stowplan_request_duration_seconds": ("histogram", ("shape",)),
    "stowplan_request_stage_seconds": ("summary", ("component",)),
    "stowplan_requests_total": ("counter", ("status",)),
    "stowplan_queue_requests": ("gauge", ()),
    "stowplan_streamed_bytes_total": ("counter", ()),
    "stowplan_stream_wait_seconds_total": ("counter", ()),
    "stowplan_rollbacks_total": ("counter", ("reason",)),
    "stowplan_placement_validated": ("gauge", ()),
    "stowplan_placement_info": ("gauge", ("plan", "device", "uuid", "product")),
    "stowplan_predicted_seconds": ("gauge", ()),
    "stowplan_measured_seconds": ("gauge", ()),
    "stowplan_predicted_peak_bytes": ("gauge", ()),
    "stowplan_measured_peak_bytes": ("gauge", ()),
    # Beside the design: limits of phases, and whether served requests still take what was promised.
    "stowplan_phase_deadline_seconds": ("gauge", ("phase",)),
    "stowplan_drift_ratio": ("gauge", ("of",)),
    "stowplan_drifted": ("gauge", ("of",)),
}
OPERATOR = {
    "stowplan_operator_reconcile_duration_seconds": ("histogram", ("kind",)),
    "stowplan_operator_reconciles_total": ("counter", ("kind", "result")),
    "stowplan_operator_gate_latency_seconds": ("histogram", ()),
    "stowplan_operator_last_event_timestamp_seconds": ("gauge", ("kind",)),
    "stowplan_operator_api_requests_total": ("counter", ("verb", "kind")),
    "stowplan_operator_objects": ("gauge", ("kind",)),
    "stowplan_operator_build_info": ("gauge", ("version",)),
    # Beside the design: a CustomResourceDefinition that is older than the operator.
    "stowplan_operator_definition_missing_fields": ("gauge", ("kind",)),
    # Beside the design: rollbacks also of pods that are gone, which their own counter went with.
    "stowplan_operator_rollbacks_total": ("counter", ("reason",)),
}
BASE_UNITS = ("_bytes", "_seconds", "_total", "_ratio", "_requests", "_objects", "_fields", "_info")
FLAGS = ("stowplan_placement_validated", "stowplan_drifted")


def collectors(registry: CollectorRegistry) -> list[Collector]:
    every = list(registry._collector_to_names)
    return [one for one in every if not isinstance(one, ProcessCollector)]


def exposed(registry: CollectorRegistry) -> dict[str, tuple[str, tuple[str, ...]]]:
    found = {}
    for collector in collectors(registry):
        (family,) = collector.describe()
        name = family.name + ("_total" if family.type == "counter" else "")
        labels: tuple[str, ...] = vars(collector)["_labelnames"]
        found[name] = (family.type, labels)
    return found


@pytest.mark.parametrize(
    ("registry", "listed"),
    [(AgentMetrics().registry, AGENT), (Metrics().registry, OPERATOR)],
    ids=["agent", "operator"],
)
def test_what_is_exposed_is_what_is_listed(registry: CollectorRegistry, listed: dict[str, Any]) -> None:
    assert exposed(registry) == listed
    for name in listed:
        assert name.endswith(BASE_UNITS) or name in FLAGS, name
        assert name.endswith("_total") == (listed[name][0] == "counter")
    for collector in collectors(registry):
        (family,) = collector.describe()
        assert family.documentation.endswith(".") and len(family.documentation) > 8, family.name


def series(registry: CollectorRegistry) -> int:
    return sum(len(family.samples) for family in registry.collect() if family.name.startswith("stowplan"))


SIZES = st.tuples(st.integers(1, 1 << 14), st.integers(1, 1 << 14), st.integers(1, 10_000))


@given(st.lists(SIZES, min_size=1, max_size=30), st.lists(st.text(min_size=1, max_size=9), min_size=1, max_size=30))
@settings(max_examples=20, deadline=None)
def test_no_request_and_no_replaced_placement_adds_a_series(sizes: list[Any], plans: list[str]) -> None:
    metrics = AgentMetrics(CollectorRegistry())
    metrics.set_shapes({(832, 480, 81): "clip"})
    metrics.set_components({"vae": ComponentBytes(1, 2, 3)})
    metrics.set_placement(plan="first", device="H200", uuid="", product="H200")
    before = series(metrics.registry)
    for size in sizes:
        metrics.observe_request(1.0, size)
    for plan in plans:
        metrics.set_placement(plan=plan, device="H200", uuid="", product="H200")
        metrics.set_components({plan: ComponentBytes(1, 2, 3)})
    assert series(metrics.registry) == before


def test_all_that_a_pod_can_expose_is_bounded() -> None:
    """Every enumeration in full, and as many components, shapes and ranks as the CRDs allow."""
    metrics = AgentMetrics(CollectorRegistry())
    metrics.set_shapes({(number, number, 1): f"shape-{number}" for number in range(16)})
    metrics.set_components({f"part-{number}": ComponentBytes(1, 2, 3) for number in range(32)})
    metrics.observe_stages({f"part-{number}": 1.0 for number in range(32)}, waited=1.0)
    for phase in get_args(Phase):
        metrics.set_phase_duration(phase, 1.0)
        metrics.set_phase_deadline(phase, 1.0)
    for reason in PlacementReason:
        metrics.count_rollback(reason)
    for kind in get_args(DeviceKind):
        metrics.set_device_memory(0, kind, 1)
    statuses, tiers = get_args(RequestStatus), get_args(Tier)
    for status in statuses:
        metrics.count_request(status)
    assert (len(statuses), len(tiers)) == (6, 3)
    assert series(metrics.registry) < 800
