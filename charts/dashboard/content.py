"""What the dashboard shows: rows of panels, each one question with its queries. Edit this file, then `make manifests`.

Every query is held to the metrics that exist, parsed by promtool, and asked of a real Prometheus that has read a real
agent (tests/unit/dashboards, tests/pipelines), and agent and operator in a cluster (tests/cluster/test_main_job.py).
The label diffusion_deployment comes from the chart's PodMonitor.
"""

from __future__ import annotations

from typing import Final

from dashboard.panels import Mark, Panel, Query, Row

PODS: Final = 'namespace=~"$namespace", diffusion_deployment=~"$deployment", pod=~"$pod"'
"""What the variables choose, as a selector of the serving pods' metrics."""
WINDOW: Final = "$__rate_interval"


def quantiles(name: str, by: str, selector: str, words: str) -> tuple[Query, ...]:
    """Median, p95 and p99 of a histogram by one label."""
    keys = ", ".join(("le", *([by] if by else [])))
    return tuple(
        Query(
            # A histogram that nothing came into has no quantile: the comparison leaves such a series out of the legend.
            f"histogram_quantile({share}, sum by ({keys}) (rate({name}_bucket{{{selector}}}[{WINDOW}]))) > 0",
            f"p{100 * share:.0f} {words}".strip(),
        )
        for share in (0.5, 0.95, 0.99)
    )


def device(kind: str) -> str:
    """Device memory of one kind, over the chosen pods."""
    return f'sum(stowplan_device_memory_bytes{{{PODS}, kind="{kind}"}})'


HELD: Final = f'sum by (component) (stowplan_component_bytes{{{PODS}, tier="device"}})'
INFO: Final = f'label_replace(stowplan_placement_info{{{PODS}}}, "UUID", "$1", "uuid", "(.+)")'

ROWS: Final = (
    Row(
        "Do they serve?",
        (
            Panel("Validated pods", "Pods whose placement was proven in this boot: their gates are open.", "none",
                  (Query(f"sum(stowplan_placement_validated{{{PODS}}})", "validated"),
                   Query(f"count(stowplan_placement_validated{{{PODS}}})", "of")), "stat", 6),
            Panel("Requests that wait", "Requests in the queues of the chosen pods.", "none",
                  (Query(f"sum(stowplan_queue_requests{{{PODS}}})", "waiting"),), "stat", 6),
            Panel("Rollbacks", "Placements taken back since the pods began. The annotations show when.", "none",
                  (Query(f"sum(stowplan_rollbacks_total{{{PODS}}}) or vector(0)", "rollbacks"),), "stat", 6),
            Panel("Drift", "How far the last requests are off what was promised. Beyond 10 % it is called drift.",
                  "percentunit", (Query(f"max by (of) (abs(stowplan_drift_ratio{{{PODS}}}))", "{{of}}"),), "stat", 6),
        ),
    ),
    Row(
        "What is on the card?",
        (
            Panel("Device memory by component",
                  "Weights on the device between requests, and what libraries take outside the allocator. The lines: "
                  "all that the process may use, that less the reserve, and the peak of the proof.", "bytes",
                  (Query(HELD, "{{component}}"),
                   Query(f"{device('used')} - sum({HELD})", "outside the weights"),
                   Query(device("capacity"), "capacity", limit=True),
                   Query(f"{device('capacity')} - {device('reserve')}", "capacity less the reserve", limit=True),
                   Query(device("peak"), "peak of a request", limit=True)), "stack"),
            Panel("Planned against used",
                  "What the plan promised of the proof's request, what the proof measured, and the card.", "bytes",
                  (Query(f"sum(stowplan_predicted_peak_bytes{{{PODS}}})", "planned peak"),
                   Query(f"sum(stowplan_measured_peak_bytes{{{PODS}}})", "measured peak"),
                   Query(device("used"), "used between requests"),
                   Query(device("capacity"), "capacity", limit=True))),
            Panel("Host memory locked against its budget",
                  "Pages locked for copies at full speed. At the budget, what is left is copied from pageable memory.",
                  "bytes",
                  (Query(f"sum by (component) (stowplan_component_bytes{{{PODS}, tier=\"pinned\"}})", "{{component}}"),
                   Query(f"sum(stowplan_host_pin_budget_bytes{{{PODS}}})", "budget", limit=True),
                   Query(f"sum(stowplan_host_pinned_bytes{{{PODS}}})", "locked", limit=True)), "stack"),
            Panel("The card as DCGM sees it",
                  "NVIDIA's own count beside ours, joined by the card's UUID; empty without dcgm-exporter. More than "
                  "ours is of another process, or of the driver.", "bytes",
                  (Query(f"sum by (pod) ({INFO} * on (UUID) group_left () "
                         "(max by (UUID) (DCGM_FI_DEV_FB_USED) * 1048576))", "{{pod}} by DCGM"),
                   Query(f"sum by (pod) (stowplan_device_memory_bytes{{{PODS}, kind=\"used\"}})", "{{pod}} by us"))),
        ),
    ),
    Row(
        "How long does a request take?",
        (
            Panel("Seconds a request by shape",
                  "Median, p95 and p99 on the device, without waiting in the queue.", "s",
                  quantiles("stowplan_request_duration_seconds", "shape", PODS, "{{shape}}")),
            Panel("Where the seconds go",
                  "Seconds of a request in each component, waiting for its weights included.", "s",
                  (Query(f"sum by (component) (rate(stowplan_request_stage_seconds_sum{{{PODS}}}[{WINDOW}])) / "
                         f"sum by (component) (rate(stowplan_request_stage_seconds_count{{{PODS}}}[{WINDOW}]))",
                         "{{component}}"),), "stack"),
            Panel("Compute waits for weights",
                  "Share of the device's time in which compute stands still for a copy: what streaming really costs.",
                  "percentunit",
                  (Query(f"sum by (pod) (rate(stowplan_stream_wait_seconds_total{{{PODS}}}[{WINDOW}])) / "
                         f"sum by (pod) (rate(stowplan_request_duration_seconds_sum{{{PODS}}}[{WINDOW}]))",
                         "{{pod}}"),), width=8),
            Panel("Weights streamed", "Weight bytes copied to the devices while they compute.", "Bps",
                  (Query(f"sum by (pod) (rate(stowplan_streamed_bytes_total{{{PODS}}}[{WINDOW}]))", "{{pod}}"),),
                  width=8),
            Panel("Requests by how they ended", "Refused: larger than measured. Rejected: the queue was full.", "reqps",
                  (Query(f"sum by (status) (rate(stowplan_requests_total{{{PODS}}}[{WINDOW}]))", "{{status}}"),),
                  "bars", 8),
            Panel("Promised against taken",
                  "Seconds of the request that the proof ran: of the plan, and measured.", "s",
                  (Query(f"stowplan_predicted_seconds{{{PODS}}}", "{{pod}} promised"),
                   Query(f"stowplan_measured_seconds{{{PODS}}}", "{{pod}} measured"))),
            Panel("Waiting requests", "Requests in the queue of each pod.", "none",
                  (Query(f"sum by (pod) (stowplan_queue_requests{{{PODS}}})", "{{pod}}"),)),
        ),
    ),
    Row(
        "How did they start?",
        (
            Panel("Start-up phases", "Seconds of each phase of the slowest chosen pod.", "s",
                  (Query(f"max by (phase) (stowplan_phase_duration_seconds{{{PODS}}})", "{{phase}}"),), "gauge"),
            Panel("Phases against their deadlines", "At 100 % a phase is given up.", "percentunit",
                  (Query(f"max by (phase) (stowplan_phase_duration_seconds{{{PODS}}} / "
                         f"stowplan_phase_deadline_seconds{{{PODS}}})", "{{phase}}"),), "gauge"),
        ),
    ),
    Row(
        "Is the operator well?",
        (
            Panel("From validated to an open gate", "The agent's word has whole seconds: below one is noise.", "s",
                  quantiles("stowplan_operator_gate_latency_seconds", "", "", ""), width=8),
            Panel("Reconciles by result", "Written, unchanged, or failed and tried again.", "ops",
                  (Query(f"sum by (result) (rate(stowplan_operator_reconciles_total[{WINDOW}]))", "{{result}}"),),
                  "bars", 8),
            Panel("Seconds since a kind was heard of", "A full list comes every few minutes; more is stale.", "s",
                  (Query("time() - max by (kind) (stowplan_operator_last_event_timestamp_seconds)", "{{kind}}"),),
                  width=8),
            Panel("Requests to the API server", "By verb.", "reqps",
                  (Query(f"sum by (verb) (rate(stowplan_operator_api_requests_total[{WINDOW}]))", "{{verb}}"),),
                  width=8),
            Panel("Seconds of a reconcile", "Writes included.", "s",
                  quantiles("stowplan_operator_reconcile_duration_seconds", "", "", ""), width=8),
            Panel("Objects known", "By kind.", "none",
                  (Query("max by (kind) (stowplan_operator_objects)", "{{kind}}"),), width=8),
        ),
    ),
)  # fmt: skip

_OPEN: Final = f"stowplan_placement_validated{{{PODS}}}"
_TAKEN_BACK: Final = f"stowplan_rollbacks_total{{{PODS}}}"
MARKS: Final = (
    Mark("Gate opened", f"{_OPEN} == 1 unless ({_OPEN} offset 1m == 1)", "green"),
    Mark("Gate closed", f"{_OPEN} offset 1m == 1 unless {_OPEN} == 1", "orange"),
    Mark(
        "Rolled back",
        f"({_TAKEN_BACK} unless {_TAKEN_BACK} offset 1m) or increase({_TAKEN_BACK}[1m]) > 0",
        "red",
    ),
)
VARIABLES: Final = (
    ("namespace", "Namespace", "label_values(stowplan_placement_validated, namespace)"),
    ("deployment", "Deployment",
     'label_values(stowplan_placement_validated{namespace=~"$namespace"}, diffusion_deployment)'),
    ("pod", "Pod",
     'label_values(stowplan_placement_validated{namespace=~"$namespace", diffusion_deployment=~"$deployment"}, pod)'),
)  # fmt: skip
