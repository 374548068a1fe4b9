"""The ConfigMap with the stored starts of a deployment's pods: what proven starts leave for the next ones.

One file a fingerprint (checkpoint, card, driver, versions, shapes), as the agent of a proven start wrote it; another
card or another workload finds no file of its own and measures. Nothing in it is trusted: a placement from it is proven
again in every pod.
"""

from __future__ import annotations

from collections.abc import Mapping

from stowplan_api.contract import ANNOTATION_RECALIBRATE, ANNOTATION_STORED_BY
from stowplan_operator.kinds import CONFIG_MAP, Json
from stowplan_operator.render.naming import child, recalibration, starts_name


def stored_starts(dd: Json, files: Mapping[str, str], stored_by: str) -> Json:
    """``files`` by name; ``stored_by`` is the stamp of the newest of them, empty when there is none."""
    manifest = child(CONFIG_MAP, dd, starts_name(dd["metadata"]["name"]))
    annotations = {ANNOTATION_STORED_BY: stored_by, ANNOTATION_RECALIBRATE: recalibration(dd)}
    manifest["metadata"]["annotations"] = {key: value for key, value in annotations.items() if value}
    return manifest | ({"data": dict(files)} if files else {})
