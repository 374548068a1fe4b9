"""What the last version left in clusters: its release, and deployments with their children, as it wrote them.

A new version meets these objects at its first start. `test_upgrade.py` holds it to leaving pods alone; without stored
objects it would be held to itself only. When a version is released, `PYTHONPATH=tests python -m stored_version` writes
the files anew, and not before: a difference that the tests find is a restart of every pod of every user.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from localcluster import chart
from stowplan_operator.render import children, read_spec
from stowplan_operator.settings import Settings

HERE = Path(__file__).parent
RELEASE = HERE / "release.yaml"
CHILDREN = HERE / "children.yaml"
NAMESPACE = "stored"
UID = "0c0f2f2e-0000-4000-8000-000000000000"
"""Stands for the uid that the API server gives a DiffusionDeployment."""
SETTINGS = Settings(agent_image="stowplan/agent:0.1.0")
"""As the chart's defaults are."""
EXAMPLES = ("wan22", "flux", "tiny-wan")
Json = dict[str, Any]


def release() -> list[Json]:
    """The objects of the release, as the last version's chart rendered them."""
    return list(yaml.safe_load_all(RELEASE.read_text(encoding="utf-8")))


def deployments() -> list[tuple[Json, list[Json]]]:
    """Each stored DiffusionDeployment with its children, as the last version's operator applied them."""
    return [(entry["deployment"], entry["children"]) for entry in yaml.safe_load_all(CHILDREN.read_text("utf-8"))]


def rendered(dd: Mapping[str, Any], standing: str = "") -> list[Json]:
    """The children of a stored DiffusionDeployment as this version renders them.

    ``standing`` is the hash of the pod template that it meets; none for a deployment that is new to it.
    """
    whole = {**dd, "metadata": {**dd["metadata"], "namespace": NAMESPACE, "uid": UID, "generation": 1}}
    return list(children(whole, read_spec(whole), SETTINGS, standing))


def subjects() -> list[Json]:
    """The deployments to store: one that uses each field and runs in a few megabytes, and what examples look like."""
    paths = [HERE / "everything.yaml", *(HERE.parents[1] / "examples" / f"{name}.yaml" for name in EXAMPLES)]
    return [yaml.safe_load(path.read_text(encoding="utf-8")) for path in paths]


def store() -> None:
    """Write both files as this version makes them."""
    RELEASE.write_text(yaml.safe_dump_all(chart.template(), sort_keys=False, width=120), encoding="utf-8")
    entries = [{"deployment": dd, "children": rendered(dd)} for dd in subjects()]
    CHILDREN.write_text(yaml.safe_dump_all(entries, sort_keys=False, width=120), encoding="utf-8")
