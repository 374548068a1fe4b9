"""Whether the API server's definitions of our kinds know every field that this operator knows.

An older CustomResourceDefinition drops what it does not know without a word: a user's setting would be ignored, and a
status with such a field refused. So what is served is compared with what is known, at start and at each resync.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from stowplan_api import GROUP, VERSION
from stowplan_api.crd import KINDS, schema
from stowplan_operator.client import ApiError, Client
from stowplan_operator.decide.dropped import Dropped
from stowplan_operator.kinds import DIFFUSION_DEPLOYMENT
from stowplan_operator.metrics import Metrics

_logger = logging.getLogger(__name__)
_KEPT_WHOLE: Final = "x-kubernetes-preserve-unknown-fields"


class Definitions:
    """What the served definitions drop; nothing until `check` has found something."""

    def __init__(self, client: Client, metrics: Metrics) -> None:
        self._client = client
        self._metrics = metrics
        self._found: dict[str, tuple[str, ...]] = {}
        self.dropped = Dropped()
        """Of a DiffusionDeployment."""

    async def check(self) -> bool:
        """Look again; whether what is dropped has changed. A server that does not show its schemas is taken as it is.

        Raises `ApiError` where the server is busy or away.
        """
        try:
            served = await self._client.schemas(GROUP, VERSION)
        except ApiError as error:
            if error.transient:
                raise
            _logger.warning("The served definitions cannot be read, so an older one goes unseen: %s", error.message)
            return False
        found = {kind.name: missing_fields(schema(kind), _of_kind(served, kind.name)) for kind in KINDS}
        for kind, fields in found.items():
            self._metrics.missing_fields.labels(kind=kind).set(len(fields))
            if fields and fields != self._found.get(kind):
                _logger.error(
                    "The CustomResourceDefinition of %s is older than this operator and drops %s; update it "
                    "(helm upgrade with crds.enabled, or kubectl apply --server-side of the crds folder).",
                    kind,
                    ", ".join(fields),
                )
        self._found = found
        before, self.dropped = self.dropped, Dropped.of(found[DIFFUSION_DEPLOYMENT.kind])
        return before != self.dropped


def missing_fields(known: Mapping[str, Any], served: Mapping[str, Any], path: str = "") -> tuple[str, ...]:
    """Paths of fields, such as ``spec.workload.shapes[].weight``, that one schema has and the other drops.

    A field that is missing is named itself, and not what would be inside it.
    """
    if not served or served.get(_KEPT_WHOLE):
        return ()
    found: list[str] = []
    for name, field in (known.get("properties") or {}).items():
        there = (served.get("properties") or {}).get(name)
        where = f"{path}.{name}" if path else name
        if there is None:
            found.append(where)
        elif where != "metadata":
            found += missing_fields(field, there, where)
    if "items" in known:
        found += missing_fields(known["items"], served.get("items") or {}, f"{path}[]")
    return tuple(found)


def _of_kind(served: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """The schema of a kind, by the mark that the API server puts on it; empty when there is none."""
    wanted = {"group": GROUP, "version": VERSION, "kind": kind}
    return next(
        (entry for entry in served.values() if wanted in (entry.get("x-kubernetes-group-version-kind") or ())), {}
    )
