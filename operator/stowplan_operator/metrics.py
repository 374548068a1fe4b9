"""What the operator measures of itself, under the names of KUBERNETES.md. Labels are kinds and verbs: bounded."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from stowplan_api.contract import PlacementReason

LONGEST_LATENCY: Final = 86_400.0
"""Seconds. An operator may have been away for a while; an agent that says more is not to be believed."""
_REASONS: Final = frozenset(PlacementReason)
_LATENCY_BUCKETS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 60.0)
_RECONCILE_BUCKETS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0)


class Metrics:
    """One registry and its collectors."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        prefix = "stowplan_operator_"
        self.reconcile_duration = Histogram(
            f"{prefix}reconcile_duration_seconds",
            "Seconds of one reconcile, writes included.",
            ["kind"],
            buckets=_RECONCILE_BUCKETS,
            registry=self.registry,
        )
        self.reconciles = Counter(
            f"{prefix}reconciles_total", "Reconciles by result.", ["kind", "result"], registry=self.registry
        )
        self.gate_latency = Histogram(
            f"{prefix}gate_latency_seconds",
            "Seconds from the agent's Validated=True (whole seconds) to the gate's True.",
            buckets=_LATENCY_BUCKETS,
            registry=self.registry,
        )
        self.rollbacks = Counter(
            f"{prefix}rollbacks_total",
            "Rollbacks of pods, by reason, since the operator started; those of pods that are gone stay counted.",
            ["reason"],
            registry=self.registry,
        )
        self.last_event = Gauge(
            f"{prefix}last_event_timestamp_seconds",
            "Unix time of the newest watch event or list of a kind.",
            ["kind"],
            registry=self.registry,
        )
        self.api_requests = Counter(
            f"{prefix}api_requests_total", "Requests to the API server.", ["verb", "kind"], registry=self.registry
        )
        self.objects = Gauge(f"{prefix}objects", "Objects known of a kind.", ["kind"], registry=self.registry)
        self.missing_fields = Gauge(
            f"{prefix}definition_missing_fields",
            "Fields that the operator knows and the served CustomResourceDefinition drops.",
            ["kind"],
            registry=self.registry,
        )
        self.build_info = Gauge(f"{prefix}build_info", "Always 1.", ["version"], registry=self.registry)
        self.build_info.labels(version=installed_version()).set(1)

    def gate_opened(self, seconds: float) -> None:
        """A gate followed its agent's Validated=True. Of times that cannot be, nothing is learnt: one that is years
        ago would be all that the sum tells from then on.
        """
        if seconds <= LONGEST_LATENCY:
            self.gate_latency.observe(max(0.0, seconds))

    def rolled_back(self, reason: str) -> None:
        """A status counts one more rollback. An agent may write any reason: what is none of ours is ``Other``."""
        self.rollbacks.labels(reason=reason if reason in _REASONS else "Other").inc()

    def count_request(self, verb: str, kind: str) -> None:
        """One request to the API server."""
        self.api_requests.labels(verb=verb, kind=kind).inc()


def installed_version() -> str:
    """Version of the installed distribution."""
    try:
        return version("stowplan")
    except PackageNotFoundError:
        return "unknown"
