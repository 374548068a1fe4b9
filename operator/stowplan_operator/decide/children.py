"""Which children to apply; and the same answer at once while neither the spec nor any child has changed since.

Rendering and comparing field by field are most of what a decision costs, and most decisions are about a pod. All that
is remembered is that nothing was to be written for one generation and these versions of its children, so a memory
changes no answer, and an empty one costs time and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from stowplan_api.contract import DeploymentReason, Manager
from stowplan_api.diffusion_deployment import DiffusionDeploymentSpec
from stowplan_operator.decide.events import Story, created, rolling_out
from stowplan_operator.decide.rollout import template_of
from stowplan_operator.decide.trouble import Trouble
from stowplan_operator.differences import would_change
from stowplan_operator.kinds import DEPLOYMENT, Json, kind_of
from stowplan_operator.observed import Key, Snapshot
from stowplan_operator.remembered import Remembered
from stowplan_operator.render import SpecError, children, read_spec
from stowplan_operator.render.naming import measured, recalibration
from stowplan_operator.settings import Settings

_DEPLOYMENTS: Final = 10_000
_Versions = tuple[object, ...]


@dataclass(frozen=True)
class ChildWrite:
    """A child to apply, and the Events to post once it is there."""

    manifest: Json
    existing: Json | None
    events: tuple[Json, ...] = ()


@dataclass(frozen=True)
class Rendered:
    """What a spec asks for. A bad spec changes no pod and closes no gate: it has an error and nothing else."""

    spec: DiffusionDeploymentSpec | None
    template: str = ""
    """Hash of the pod template; empty when there is none."""
    invalid: Trouble | None = None
    differing: tuple[Json, ...] = ()
    """The children that are missing or are not what they should be, in the order of their creation."""


class Settled:
    """Deployments whose children were what they should be, each with the versions that this was seen of."""

    def __init__(self) -> None:
        self._known: Remembered[Key, tuple[_Versions, Rendered]] = Remembered(_DEPLOYMENTS)

    def rendered(self, snapshot: Snapshot, dd: Json, settings: Settings) -> Rendered:
        """Render and compare, unless the answer is known. ``settings`` are the same in every call."""
        versions = _versions(snapshot, dd)
        known = self._known.get(snapshot.key)
        if known is not None and known[0] == versions:
            return known[1]
        found = _render(snapshot, dd, settings)
        if found.invalid is None and not found.differing:
            self._known.put(snapshot.key, (versions, found))
        return found


def child_writes(
    dd: Json, snapshot: Snapshot, rendered: Rendered, now: datetime, settings: Settings
) -> tuple[ChildWrite, ...]:
    """The writes of what differs, each with the Events that it will be worth."""
    writes = []
    for manifest in rendered.differing:
        existing = snapshot.child(kind_of(manifest), manifest["metadata"]["name"])
        stories: tuple[Story, ...] = ()
        if existing is None:
            stories = (created(manifest),)
        elif manifest["kind"] == DEPLOYMENT.kind and template_of(manifest) != template_of(existing):
            stories = (rolling_out(dd["metadata"]["generation"], template_of(manifest)),)
        events = tuple(story.manifest(dd, now, settings.instance) for story in stories)
        writes.append(ChildWrite(manifest, existing, events))
    return tuple(writes)


def _render(snapshot: Snapshot, dd: Json, settings: Settings) -> Rendered:
    try:
        spec = read_spec(dd)
        standing = snapshot.child(DEPLOYMENT, snapshot.key.name)
        wanted = children(dd, spec, settings, template_of(standing) if standing is not None else "")
    except SpecError as error:
        return Rendered(None, invalid=Trouble(DeploymentReason.SPEC_INVALID, str(error), final=True))
    differing = tuple(
        manifest
        for manifest in wanted
        if would_change(manifest, snapshot.child(kind_of(manifest), manifest["metadata"]["name"]), Manager.WORKLOAD)
    )
    (pods,) = (manifest for manifest in wanted if manifest["kind"] == DEPLOYMENT.kind)
    return Rendered(spec, template_of(pods), differing=differing)


def _versions(snapshot: Snapshot, dd: Json) -> _Versions:
    """Everything that rendering and comparing read, by what changes with it."""
    metadata = dd["metadata"]
    there = (
        (kind.kind, name, raw["metadata"]["uid"], raw["metadata"]["resourceVersion"])
        for (kind, name), raw in snapshot.children.items()
    )
    return (metadata["uid"], metadata["generation"], recalibration(dd), measured(dd), *there)
