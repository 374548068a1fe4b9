"""A decision on observed objects, what it says, and the objects once it was carried out."""

from __future__ import annotations

import copy

from observations import NOW, SETTINGS, existing_children, snapshot

from stowplan_api.contract import Manager
from stowplan_operator.decide import ChildWrite, Decision, decide
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
    """The objects after the decision was written, and nobody else did anything."""
    after = copy.deepcopy(objects)
    for write in decision.children:
        after = [raw for raw in after if write.existing is None or raw["metadata"]["uid"] != _uid(write.existing)]
        after.append(_applied(write))
    for number, manifest in enumerate(decision.placements):
        made = copy.deepcopy(manifest)
        made["metadata"] |= {"uid": f"new-rp-{number}", "resourceVersion": "1"}
        after.append(made)
    if decision.status is not None:
        after[0]["status"] = copy.deepcopy(decision.status["status"])
    for gate in decision.gates:
        target = next(raw for raw in after if raw["metadata"]["uid"] == gate.patch.pod.uid)
        (new,) = gate.patch.body["status"]["conditions"]
        rest = [entry for entry in target["status"]["conditions"] if entry["type"] != new["type"]]
        target["status"]["conditions"] = [*rest, new]
    return after


def _applied(write: ChildWrite) -> Json:
    """What the API server holds then: ours over what was there, and the status that others wrote."""
    made = copy.deepcopy(write.manifest)
    there = write.existing or {}
    owned = {"manager": Manager.WORKLOAD.value, "operation": "Apply", "fieldsV1": {}}
    uid = _uid(there) if there else f"new-{made['kind']}-{made['metadata']['name']}"
    generation = there.get("metadata", {}).get("generation", 0) + 1
    made["metadata"] |= {"uid": uid, "resourceVersion": "2", "generation": generation, "managedFields": [owned]}
    return made | ({"status": there["status"]} if "status" in there else {})


def _uid(raw: Json) -> str:
    uid: str = raw["metadata"]["uid"]
    return uid
