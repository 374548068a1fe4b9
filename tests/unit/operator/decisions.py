"""A decision on observed objects, what it says, and the objects once it was carried out."""

from __future__ import annotations

import copy

from observations import NOW, SETTINGS, existing_children, snapshot

from stowplan_operator.decide import Decision, decide
from stowplan_operator.kinds import Json


def decided(*objects: Json, refusals: tuple[str, ...] = ()) -> Decision:
    return decide(snapshot(*objects), NOW, SETTINGS, refusals)


def conditions(decision: Decision) -> dict[str, tuple[str, str, str]]:
    assert decision.status is not None
    found = decision.status["status"]["conditions"]
    return {entry["type"]: (entry["status"], entry["reason"], entry.get("message", "")) for entry in found}


def running(dd: Json, *others: Json) -> list[Json]:
    pods = sum(raw["kind"] == "Pod" for raw in others)
    return [dd, *existing_children(dd, pods=pods), *others]


def written(objects: list[Json], decision: Decision) -> list[Json]:
    """The objects after the decision's gates and status were written."""
    after = copy.deepcopy(objects)
    if decision.status is not None:
        after[0]["status"] = copy.deepcopy(decision.status["status"])
    for gate in decision.gates:
        target = next(raw for raw in after if raw["metadata"]["uid"] == gate.patch.pod.uid)
        (new,) = gate.patch.body["status"]["conditions"]
        rest = [entry for entry in target["status"]["conditions"] if entry["type"] != new["type"]]
        target["status"]["conditions"] = [*rest, new]
    return after
