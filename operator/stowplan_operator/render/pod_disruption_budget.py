"""The PodDisruptionBudget: one pod at a time, and an unvalidated pod never blocks a drain."""

from __future__ import annotations

from stowplan_operator.kinds import POD_DISRUPTION_BUDGET, Json
from stowplan_operator.render.naming import child, selector


def pod_disruption_budget(dd: Json) -> Json:
    """At most one pod away. AlwaysAllow: a pod that is not Ready serves nobody, so evicting it costs nothing."""
    manifest = child(POD_DISRUPTION_BUDGET, dd)
    manifest["spec"] = {
        "maxUnavailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": {"matchLabels": selector(dd["metadata"]["name"])},
    }
    return manifest
