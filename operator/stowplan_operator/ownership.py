"""Whose an object is that already has the name of one of our children."""

from __future__ import annotations

from stowplan_api.contract import LABEL_DEPLOYMENT
from stowplan_operator.client import ApiError
from stowplan_operator.kinds import Json


def check_owner(manifest: Json, existing: Json) -> None:
    """Raises ApiError for an object of our child's name that is not ours (422), or not yet gone (409)."""
    owner = manifest["metadata"]["ownerReferences"][0]
    controller = next((ref for ref in existing["metadata"].get("ownerReferences") or () if ref.get("controller")), None)
    ours = (existing["metadata"].get("labels") or {}).get(LABEL_DEPLOYMENT) == owner["name"]
    if controller is None and ours:
        return  # Left behind by a delete that orphaned its children, and taken up again.
    if controller is not None and controller["uid"] == owner["uid"]:
        return
    if controller is not None and (controller["kind"], controller["name"]) == (owner["kind"], owner["name"]):
        raise ApiError(409, "the child of an earlier deployment of this name is still being deleted")
    raise ApiError(
        422,
        f"one of this name exists and belongs to something else; delete it, or rename {owner['kind']} {owner['name']}",
    )
