"""What the watches and the lists said, kept by deployment: the only thing that decisions are made from.

Watch events, lists and the answers to our own writes arrive in any order, so an object is replaced only by a newer
version of itself, and one that was seen deleted never comes back. `Observed.replace` lays a full list over all of it,
which is what repairs the effect of a lost event.

Objects are kept as text: of thousands of pods, dictionaries would take twice the memory, and lie scattered among those
of whatever was parsed beside them. A snapshot parses what belongs to one deployment, which takes half a
millisecond.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from stowplan_api.contract import LABEL_DEPLOYMENT
from stowplan_operator.kinds import (
    CHILDREN,
    CONFIG_MAP,
    DIFFUSION_DEPLOYMENT,
    LISTED,
    POD,
    RESIDENCY_PLACEMENT,
    Json,
    Kind,
)
from stowplan_operator.render.naming import starts_name
from stowplan_operator.trimming import trimmed

_GONE_LIMIT: Final = 20_000
"""Uids remembered as deleted: more than can go between a list's snapshot and its arrival."""


Place = tuple[str, str]
"""Namespace and name."""


class Key(NamedTuple):
    """Names one DiffusionDeployment: the unit of reconciling."""

    namespace: str
    name: str


@dataclass(frozen=True)
class Snapshot:
    """Everything known of one DiffusionDeployment at one moment."""

    key: Key
    dd: Json | None
    children: Mapping[tuple[Kind, str], Json]
    """Our labelled children by kind and name."""
    pods: tuple[Json, ...]
    """By name."""
    placements: Mapping[str, Json]
    """By name, which is their pod's."""
    starts: Json | None = None
    """Metadata of the ConfigMap with the stored starts."""

    def child(self, kind: Kind, name: str) -> Json | None:
        """One child, if it exists."""
        return self.children.get((kind, name))


class Kept(NamedTuple):
    """One object: what orders it among its versions, whose it is, and all that is decided on as JSON."""

    uid: str
    version: int
    key: Key | None
    text: str


class Observed:
    """The newest known version of every watched object."""

    def __init__(self) -> None:
        self._objects: dict[Kind, dict[Place, Kept]] = {kind: {} for kind in LISTED}
        self._members: dict[Key, dict[Kind, set[str]]] = {}
        self._gone: OrderedDict[str, None] = OrderedDict()

    def put(self, kind: Kind, raw: Json) -> Key | None:
        """Keep an object if it is newer than what is kept; the key it belongs to, or None when nothing changed."""
        place, uid, version = _identity(raw)
        old = self._objects[kind].get(place)
        # Resource versions are ordered integers for one resource (KEP-5504); another uid is another, later object.
        if uid in self._gone or (old is not None and old.uid == uid and old.version >= version):
            return None
        if old is not None:
            self._forget(kind, place)
        key = key_of(kind, raw)
        if key is not None:
            self._members.setdefault(key, {}).setdefault(kind, set()).add(place[1])
        text = json.dumps(trimmed(kind, raw), separators=(",", ":"))
        self._objects[kind][place] = Kept(uid, version, key, text)
        return key

    def remove(self, kind: Kind, raw: Json) -> Key | None:
        """Forget a deleted object for good; the key it belonged to."""
        place, uid, _ = _identity(raw)
        self._bury(kind, place, uid)
        return key_of(kind, raw)

    def replace(self, kind: Kind, items: Iterable[Json], version: int, namespaces: tuple[str, ...] = ()) -> None:
        """Lay a full list, taken at a resource version, over what is kept of one kind.

        What the list lacks is gone, unless it is newer than the list or outside the namespaces that were listed.
        """
        listed = set()
        for raw in items:
            listed.add(raw["metadata"]["uid"])
            self.put(kind, raw)
        for place, kept in list(self._objects[kind].items()):
            inside = not namespaces or place[0] in namespaces
            if inside and kept.uid not in listed and kept.version <= version:
                self._bury(kind, place, kept.uid)

    def deployments(self) -> set[Key]:
        """Every key of which anything is known."""
        return set(self._members)

    def count(self, kind: Kind) -> int:
        """How many objects of a kind are known."""
        return len(self._objects[kind])

    def newest(self, kind: Kind) -> int:
        """The highest resource version known of a kind; 0 when nothing is."""
        return max((kept.version for kept in self._objects[kind].values()), default=0)

    def snapshot(self, key: Key) -> Snapshot:
        """Everything known of one key; all of it empty for an unknown one."""
        members = self._members.get(key, {})

        def get(kind: Kind) -> dict[str, Json]:
            names = sorted(members.get(kind, ()))
            return {name: json.loads(self._objects[kind][key.namespace, name].text) for name in names}

        return Snapshot(
            key=key,
            dd=get(DIFFUSION_DEPLOYMENT).get(key.name),
            children={(kind, name): raw for kind in CHILDREN for name, raw in get(kind).items()},
            pods=tuple(get(POD).values()),
            placements=get(RESIDENCY_PLACEMENT),
            starts=get(CONFIG_MAP).get(starts_name(key.name)),
        )

    def _bury(self, kind: Kind, place: Place, uid: str) -> None:
        self._gone[uid] = None
        while len(self._gone) > _GONE_LIMIT:
            self._gone.popitem(last=False)
        old = self._objects[kind].get(place)
        if old is not None and old.uid == uid:
            self._forget(kind, place)

    def _forget(self, kind: Kind, place: Place) -> None:
        key = self._objects[kind].pop(place).key
        members = self._members.get(key) if key else None
        if key is None or members is None:
            return
        members.get(kind, set()).discard(place[1])
        if not any(members.values()):
            del self._members[key]


def _identity(raw: Json) -> tuple[Place, str, int]:
    """Where an object is, its uid and its version."""
    metadata = raw["metadata"]
    return (metadata["namespace"], metadata["name"]), metadata["uid"], int(metadata["resourceVersion"])


def key_of(kind: Kind, raw: Json) -> Key | None:
    """The DiffusionDeployment that an object belongs to, by its name, its spec or its label."""
    metadata = raw["metadata"]
    if kind == DIFFUSION_DEPLOYMENT:
        name = metadata["name"]
    elif kind == RESIDENCY_PLACEMENT:
        name = raw["spec"]["deployment"]
    else:
        name = (metadata.get("labels") or {}).get(LABEL_DEPLOYMENT)
    return Key(metadata["namespace"], name) if name else None
