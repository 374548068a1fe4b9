"""What kstatus makes of an object with conditions: the rules by which Flux, kpt and others call it finished.

The rules are few and the library is Go, so they are written down here, in its order: deletion, generation, Reconciling,
Stalled, and Ready for kinds that have it.
"""

from __future__ import annotations

from typing import Any, Literal

Verdict = Literal["Terminating", "InProgress", "Failed", "Current"]


def judge(obj: dict[str, Any]) -> Verdict:
    """The verdict on one object, as the API server returned it."""
    metadata, status = obj["metadata"], obj.get("status") or {}
    if metadata.get("deletionTimestamp"):
        return "Terminating"
    if status.get("observedGeneration", metadata["generation"]) != metadata["generation"]:
        return "InProgress"
    conditions = status.get("conditions") or []
    for condition in conditions:  # The first of the two decides.
        if condition["status"] == "True" and condition["type"] in ("Reconciling", "Stalled"):
            return "InProgress" if condition["type"] == "Reconciling" else "Failed"
    ready = next((condition["status"] for condition in conditions if condition["type"] == "Ready"), "True")
    return "Current" if ready == "True" else "InProgress"
