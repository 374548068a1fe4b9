"""The metrics of both sides, from the objects that expose them."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, ProcessCollector

from reference_pages.markdown_table import table
from stowplan_agent.serving.metrics import AgentMetrics
from stowplan_operator.metrics import Metrics

INTRODUCTION = """# Metrics

Made from `AgentMetrics` and `Metrics`. Base units; labels take their values from enumerations, from the placement in
force and from the declared shapes, so that no request adds a series. How they are read, and the dashboard over them, is
told in [watch it](../how-to/watch-it.md); alerts are in the [runbooks](../alerts.md).
"""


def page() -> str:
    """The page as Markdown."""
    parts = [INTRODUCTION]
    for title, registry in (
        ("Of each serving pod, at /metrics", AgentMetrics(CollectorRegistry()).registry),
        ("Of the operator", Metrics().registry),
    ):
        parts += [f"## {title}\n", table(("metric", "kind", "labels", "meaning"), sorted(_rows(registry)))]
    return "\n".join(parts)


def _rows(registry: CollectorRegistry) -> Iterator[tuple[str, str, str, str]]:
    for collector in list(registry._collector_to_names):
        if isinstance(collector, ProcessCollector):
            continue
        (family,) = collector.describe()
        labels = ", ".join(f"`{label}`" for label in vars(collector)["_labelnames"])
        name = family.name + ("_total" if family.type == "counter" else "")
        yield f"`{name}`", family.type, labels, family.documentation
