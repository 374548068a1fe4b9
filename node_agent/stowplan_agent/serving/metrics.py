"""The agent's metrics (KUBERNETES.md, Metrics): base units, ``_total`` on counters only, bounded labels.

One registry an agent, never the process-wide default, so that two agents in one test do not meet. Whoever knows a fact
sets it through a typed method here; values are plain numbers, never device tensors. A label takes its values from an
enumeration, from the placement in force or from the declared shapes: no request can add a series.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, Summary

from stowplan_agent.serving.drift import Drift
from stowplan_api.contract import PlacementReason
from stowplan_api.residency_placement import Phase

RequestStatus = Literal["completed", "failed", "out_of_memory", "cancelled", "refused", "rejected"]
DeviceKind = Literal["capacity", "reserve", "peak", "used"]
Tier = Literal["device", "pinned", "pageable"]

Size = tuple[int, int, int]
"""Width and height in pixels, and frames."""
OTHER_SHAPE: Final = "other"
"""What stands for every size that was not declared."""
_SECONDS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 3600)


@dataclass(frozen=True)
class ComponentBytes:
    """Where the bytes of one component are."""

    device: int
    pinned: int
    pageable: int


class AgentMetrics:
    """Every metric of one agent, and the registry that /metrics prints."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._placement_metrics()
        self._request_metrics()
        self._streamed = 0
        self._shapes: Mapping[Size, str] = {}

    def _placement_metrics(self) -> None:
        self._device = self._gauge(
            "device_memory_bytes",
            "Device memory of a rank: what may be used, its reserve, the proof's peak, and used between requests.",
            "rank",
            "kind",
        )
        self._component = self._gauge(
            "component_bytes", "Weight bytes of a component between requests, by where they are.", "component", "tier"
        )
        self._pinned = self._gauge("host_pinned_bytes", "Host memory locked for copies.")
        self._pin_budget = self._gauge("host_pin_budget_bytes", "Host memory that may be locked.")
        self._phase = self._gauge("phase_duration_seconds", "Time a start-up phase of this boot took.", "phase")
        self._deadline = self._gauge("phase_deadline_seconds", "Time a start-up phase of this boot may take.", "phase")
        self._validated = self._gauge("placement_validated", "1 when the placement in force was proven in this boot.")
        self._info = self._gauge("placement_info", "The placement in force.", "plan", "device", "uuid", "product")
        self._predicted_seconds = self._gauge("predicted_seconds", "Time promised for the request that validation ran.")
        self._measured_seconds = self._gauge("measured_seconds", "Time of the request that validation ran.")
        self._predicted_peak = self._gauge("predicted_peak_bytes", "Highest device use promised for it.")
        self._measured_peak = self._gauge("measured_peak_bytes", "Highest device use that validation measured.")
        self._drift = self._gauge(
            "drift_ratio", "Median of what the last requests took over what was promised, less 1.", "of"
        )
        self._drifted = self._gauge("drifted", "1 when requests are off what was promised by more than 10 %.", "of")
        self._rollbacks = self._counter("rollbacks", "Placements taken back.", "reason")

    def _request_metrics(self) -> None:
        self._requests = self._counter("requests", "Requests by how they ended.", "status")
        for status in get_args(RequestStatus):
            self._requests.labels(status)
        self._queue = self._gauge("queue_requests", "Requests that wait for the pipeline.")
        self._duration = Histogram(
            "stowplan_request_duration_seconds",
            "Time of completed requests on the device, by declared shape; no warm-up, no waiting in the queue.",
            ("shape",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._stages = Summary(
            "stowplan_request_stage_seconds",
            "Time of one request in a component, waiting for its weights included.",
            ("component",),
            registry=self.registry,
        )
        self._streamed_bytes = self._counter("streamed_bytes", "Weight bytes copied to the device while computing.")
        self._stream_wait_seconds = self._counter("stream_wait_seconds", "Time that compute waited for a weight copy.")

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"stowplan_{name}", text, labels, registry=self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"stowplan_{name}", text, labels, registry=self.registry)

    def set_device_memory(self, rank: int, kind: DeviceKind, value: int) -> None:
        """Bytes of one rank's device."""
        self._device.labels(str(rank), kind).set(value)

    def set_components(self, components: Mapping[str, ComponentBytes]) -> None:
        """Bytes of every component; a component left out is gone."""
        self._component.clear()
        for name, held in components.items():
            self._component.labels(name, "device").set(held.device)
            self._component.labels(name, "pinned").set(held.pinned)
            self._component.labels(name, "pageable").set(held.pageable)

    def set_host_pinned(self, held: int, budget: int) -> None:
        """Bytes locked now, and bytes that may be locked."""
        self._pinned.set(held)
        self._pin_budget.set(budget)

    def set_phase_duration(self, phase: Phase, seconds: float) -> None:
        """Seconds that a start-up phase took."""
        self._phase.labels(phase).set(seconds)

    def set_phase_deadline(self, phase: Phase, seconds: float) -> None:
        """Seconds that a start-up phase may take."""
        self._deadline.labels(phase).set(seconds)

    def set_validated(self, validated: bool) -> None:
        """Whether the placement in force was proven in this boot."""
        self._validated.set(int(validated))

    def set_placement(self, *, plan: str, device: str, uuid: str, product: str) -> None:
        """Identity of the placement in force; replaces the former one."""
        self._info.clear()
        self._info.labels(plan, device, uuid, product).set(1)

    def set_predicted(self, *, seconds: float, peak_bytes: int) -> None:
        """What the plan promised."""
        self._predicted_seconds.set(seconds)
        self._predicted_peak.set(peak_bytes)

    def set_measured(self, *, seconds: float, peak_bytes: int) -> None:
        """What validation measured."""
        self._measured_seconds.set(seconds)
        self._measured_peak.set(peak_bytes)

    def set_drift(self, drift: Drift) -> None:
        """How far the last requests are off what was promised."""
        for of, verdict in (("seconds", drift.seconds), ("peak", drift.peak)):
            if verdict is not None:
                self._drift.labels(of).set(verdict.share)
                self._drifted.labels(of).set(int(verdict.drifted))

    def count_rollback(self, reason: PlacementReason) -> None:
        """One placement was taken back."""
        self._rollbacks.labels(reason).inc()

    def set_streamed(self, bytes_total: int) -> None:
        """The engine's running total since this boot; one below the last is of a new engine that began at 0."""
        grown = bytes_total - self._streamed
        self._streamed_bytes.inc(grown if grown >= 0 else bytes_total)
        self._streamed = bytes_total

    def observe_stages(self, seconds: Mapping[str, float], *, waited: float) -> None:
        """Where the seconds of one request went, by component; ``waited`` of them compute stood still for weights."""
        for component, spent in seconds.items():
            self._stages.labels(component).observe(spent)
        self._stream_wait_seconds.inc(waited)

    def set_queue_requests(self, waiting: int) -> None:
        """Requests that wait now."""
        self._queue.set(waiting)

    def count_request(self, status: RequestStatus) -> None:
        """One request ended so."""
        self._requests.labels(status).inc()

    def set_shapes(self, shapes: Mapping[Size, str]) -> None:
        """The declared shapes by size: the only names that requests are told apart by."""
        self._shapes = dict(shapes)
        for name in (*self._shapes.values(), OTHER_SHAPE):
            self._duration.labels(name)

    def observe_request(self, seconds: float, size: Size) -> None:
        """Time of one completed request of this size on the device."""
        self._duration.labels(self._shapes.get(size, OTHER_SHAPE)).observe(seconds)
