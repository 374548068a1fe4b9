"""Lays a partial pod template over another, as Kubernetes' strategic merge does for the lists of a pod.

Maps merge key by key, ``null`` takes a key away, a list with a merge key merges element by element, and any other list
is replaced. Elements of ``env`` and ``volumes`` are replaced whole (a volume that is an emptyDir below and a hostPath
above must not become both), which is what the API server's ``retainKeys`` does for volumes.
"""

from __future__ import annotations

from typing import Any, Final

_MERGE_KEYS: Final = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "ports": "containerPort",
    "imagePullSecrets": "name",
    "readinessGates": "conditionType",
    "hostAliases": "ip",
    "resourceClaims": "name",
    "env": "name",
    "volumes": "name",
}
_WHOLE_ELEMENTS: Final = ("env", "volumes")


class MergeError(ValueError):
    """A partial template that cannot be laid over the rendered one. The message names the field."""


def merge(base: dict[str, Any], patch: dict[str, Any], where: str = "podTemplate") -> dict[str, Any]:
    """``base`` with ``patch`` over it; neither is changed. Raises `MergeError` naming the field that does not fit."""
    merged = dict(base)
    for key, value in patch.items():
        path = f"{where}.{key}"
        if value is None:
            merged.pop(key, None)
        elif isinstance(base.get(key), dict) and not isinstance(value, dict):
            raise MergeError(f"{path} must be a mapping, not {type(value).__name__}")
        elif key in _MERGE_KEYS:
            merged[key] = _merge_list(base.get(key) or [], value, key, path)
        elif isinstance(value, dict):
            merged[key] = merge(base.get(key) or {}, value, path)
        else:
            merged[key] = value
    return merged


def _merge_list(base: list[Any], patch: Any, name: str, where: str) -> list[Any]:
    key = _MERGE_KEYS[name]
    if not isinstance(patch, list):
        raise MergeError(f"{where} must be a list of mappings, not {type(patch).__name__}")
    merged = {element[key]: element for element in base}
    for index, element in enumerate(patch):
        if not isinstance(element, dict) or key not in element:
            raise MergeError(f"{where}[{index}] has no {key!r}; {where} is merged by it")
        if not isinstance(element[key], (str, int)):
            raise MergeError(f"{where}[{index}].{key} must be text or a number, not {type(element[key]).__name__}")
        below = merged.get(element[key], {})
        whole = name in _WHOLE_ELEMENTS or not below
        merged[element[key]] = merge({} if whole else below, element, f"{where}[{element[key]}]")
    return list(merged.values())
