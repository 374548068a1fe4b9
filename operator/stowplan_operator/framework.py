"""What kopf is told: to watch, within bounds, and to do nothing else.

It would otherwise write to every object, look out for other kinds, keep a list of thousands whole in memory, and copy
each object that changes three times over to find out in what.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import kopf
from kopf._core.reactor.inventory import ResourceMemories, ResourceMemory

from stowplan_api.contract import LABEL_DEPLOYMENT
from stowplan_operator.client import PAGE
from stowplan_operator.kinds import SELECTED_BY_LABEL

WATCH_SERVER_SECONDS: Final = 240
"""A watch request ends by itself after this long: an open one that delivers nothing is replaced."""
WATCH_CLIENT_SECONDS: Final = 300
IDLE_SECONDS: Final = 0.1
"""How long kopf holds the last event of an object, parsed and whole, for one that might follow. Thousands of pods that
change within the five seconds that it takes by default would need more memory than all that the operator keeps."""
PATIENCE_SECONDS: Final = 1800
"""How long watches outlast an API server that is away."""


class NothingCompared(kopf.DiffBaseStorage):
    """For handlers of events alone, which get no difference: nothing is remembered of an object, and none is copied."""

    def build(self, *, body: kopf.Body, extra_fields: Iterable[kopf.FieldSpec] | None = None) -> kopf.BodyEssence:
        """What would be compared."""
        return kopf.BodyEssence()

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:
        """What was seen last."""
        return None

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Called by handlers of changes only, of which there are none."""


class NothingRecalled(ResourceMemories):
    """What kopf remembers of each object for handlers that it has not got here: a kilobyte, of thousands of objects."""

    async def recall(self, raw_body: kopf.RawBody, **options: Any) -> ResourceMemory:
        """A memory for this event alone."""
        return await super().recall(raw_body, **{**options, "ephemeral": True})


def pin(settings: kopf.OperatorSettings) -> None:
    """Set what kopf would otherwise choose: no writes of its own, bounded watches and lists."""
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.persistence.diffbase_storage = NothingCompared()
    settings.queueing.idle_timeout = IDLE_SECONDS
    settings.watching.chunk_size = PAGE
    settings.watching.server_timeout = WATCH_SERVER_SECONDS
    settings.watching.client_timeout = WATCH_CLIENT_SECONDS
    settings.watching.connect_timeout = 10
    settings.watching.reconnect_backoff = 1.0
    settings.networking.request_timeout = 60
    settings.networking.error_backoffs = patient_backoffs()
    for kind in SELECTED_BY_LABEL:
        settings.watching.label_selectors[kind.group, kind.version, kind.plural] = LABEL_DEPLOYMENT


def patient_backoffs() -> tuple[float, ...]:
    """Seconds between attempts of kopf's own requests: half an hour in all.

    Where they end, kopf ends the process, which then starts anew with a fresh look at everything. Its own end after a
    minute, so that each upgrade of an API server would restart every operator.
    """
    delays = [1.0]
    while sum(delays) < PATIENCE_SECONDS:
        delays.append(min(15.0, delays[-1] * 1.6))
    return tuple(delays)
