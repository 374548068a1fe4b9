"""What is kept of an object: only what decisions read, so that memory follows the number of pods and not their size.

A pod as the API server sends it is about ten times what is read of it; five thousand of them are most of what an
operator would hold.
"""

from __future__ import annotations

import json
from typing import Any, Final

from stowplan_api.contract import LABEL_DEPLOYMENT, LABEL_TEMPLATE, READINESS_GATE, Manager
from stowplan_api.model import GROUP
from stowplan_operator.kinds import CHILDREN, DIFFUSION_DEPLOYMENT, POD, RESIDENCY_PLACEMENT, Json, Kind

_POD_METADATA: Final = ("name", "namespace", "uid", "resourceVersion", "deletionTimestamp")
_POD_STATUS: Final = ("phase", "reason", "message", "podIP")
_POD_CONDITIONS: Final = frozenset({"Ready", "PodScheduled", READINESS_GATE})
_DEEPEST: Final = 80
"""Levels of a podTemplate: more than are ever rendered, and fewer than what somebody makes for us to stumble over."""
_CONDITION: Final = ("type", "status", "reason", "message", "lastTransitionTime")
_STATES: Final = (
    ("running", ("startedAt",)),
    ("waiting", ("reason", "message")),
    ("terminated", ("reason", "exitCode", "message", "startedAt")),
)


def trimmed(kind: Kind, raw: Json) -> Json:
    """What decisions need of an object. Nothing of it is changed, only left out; trimming again changes nothing."""
    if kind == POD:
        return _pod(raw)
    metadata: dict[str, Any] = dict(raw["metadata"])
    fields = metadata.pop("managedFields", None) or ()
    if kind.metadata_only:
        return {"metadata": metadata}
    if kind in CHILDREN:
        # Only what we apply is compared with what we own of it.
        metadata["managedFields"] = [_packed(entry) for entry in fields if entry.get("manager") == Manager.WORKLOAD]
    kept = {**raw, "metadata": metadata}
    if kind == DIFFUSION_DEPLOYMENT:
        if metadata.get("annotations"):
            # The last applied configuration alone is as large as the object.
            own = {name: value for name, value in metadata["annotations"].items() if name.startswith(f"{GROUP}/")}
            metadata["annotations"] = own
        spec = raw.get("spec") or {}
        if spec.get("podTemplate"):
            kept["spec"] = spec | {"podTemplate": _cut(spec["podTemplate"])}
    if kind == RESIDENCY_PLACEMENT and raw.get("status"):
        kept["status"] = _report(raw["status"])
    return kept


def _report(status: Json) -> Json:
    """What an agent says, without its stories: how long each phase took, and why the planner chose what it chose."""
    kept = {name: value for name, value in status.items() if name != "phases"}
    if isinstance(kept.get("plan"), dict):
        kept["plan"] = {name: value for name, value in kept["plan"].items() if name != "explanations"}
    return kept


def _pod(raw: Json) -> Json:
    metadata, status = raw["metadata"], raw.get("status") or {}
    labels = metadata.get("labels") or {}
    owners = [ref for ref in metadata.get("ownerReferences") or () if ref.get("controller")]
    kept = _some(metadata, _POD_METADATA)
    kept["labels"] = _some(labels, (LABEL_DEPLOYMENT, LABEL_TEMPLATE))
    kept["ownerReferences"] = [_some(ref, ("kind", "name", "controller")) for ref in owners]
    said = _some(status, _POD_STATUS)
    found = [entry for entry in status.get("conditions") or () if entry["type"] in _POD_CONDITIONS]
    said["conditions"] = [_some(entry, _CONDITION) for entry in found]
    for group in ("initContainerStatuses", "containerStatuses"):
        if status.get(group):
            said[group] = [_container(entry) for entry in status[group]]
    return {"metadata": kept, "status": said}


def _container(entry: Json) -> Json:
    kept = _some(entry, ("name", "restartCount"))
    for moment in ("state", "lastState"):
        states = entry.get(moment) or {}
        kept[moment] = {name: _some(states[name], fields) for name, fields in _STATES if states.get(name) is not None}
    return kept


def _packed(entry: Json) -> Json:
    """Which fields are owned, as text: a tree of as many mappings as there are fields, that is seldom asked."""
    tree = entry.get("fieldsV1")
    return entry if tree is None or isinstance(tree, str) else entry | {"fieldsV1": json.dumps(tree)}


def _cut(value: Any, depth: int = _DEEPEST) -> Any:
    """A JSON value without what lies deeper."""
    if isinstance(value, dict):
        return {key: _cut(below, depth - 1) for key, below in value.items()} if depth else {}
    if isinstance(value, list):
        return [_cut(below, depth - 1) for below in value] if depth else []
    return value


def _some(whole: Json, names: tuple[str, ...]) -> Json:
    return {name: whole[name] for name in names if name in whole}
