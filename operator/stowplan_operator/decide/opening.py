"""Which boot a gate was opened for last: what tells an earlier boot's word from this one's, whatever clocks do.

A report is of the process that runs if its agent started no earlier than its container. Both times are of one node,
whose clock may be set back: the next container then starts "before" the agent of the last one, whose word would pass
for its own. Two things that no clock changes say more. An agent counts the boots of its pod, and where that is how
often the container restarted, the word is of the container that runs. And an opening is remembered, where both an API
server and a restarted operator find it: in the gate's own message. A boot that was opened for one container is never
this boot of another.

It is remembered with the opening and not sooner: an opening holds for the very version of the pod that was judged, so
the container is the one that the kubelet reported, and no report that came a moment before its container's is taken for
one of the container before.

Where the count differs, a container may have ended before its agent could count, or the word is of an earlier boot.
Then it is doubted, and what was doubted is remembered too: who says something else afterwards is alive.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum, auto
from typing import Final

from stowplan_api.conditions import timestamp
from stowplan_operator.placement import PlacementView
from stowplan_operator.pod import ContainerView, PodView, parse_time
from stowplan_operator.render.naming import digest

_RECORD: Final = re.compile(r" \[boot ([0-9a-f]+) of (\S+?)(?:, who said ([0-9a-f]+))?\]$")
_PLAIN: Final = re.compile(r"[0-9a-f]{8,64}")


class Whose(Enum):
    """Which process a report is of."""

    THIS = auto()
    """The one that runs."""
    EARLIER = auto()
    """One that has ended."""
    UNKNOWN = auto()
    """Either."""


@dataclass(frozen=True)
class Opening:
    """A boot, by its id, and when the container started that it was the boot of."""

    boot: str
    container: datetime
    doubted: str = ""
    """Digest of a report of it that may have been an earlier container's; empty for what a gate was opened for."""

    @classmethod
    def of(cls, placement: PlacementView, container: datetime) -> Opening:
        """The opening for what this report proves. An id that is none of ours is text of the agent's: its digest."""
        boot = placement.boot_id
        return cls(boot if _PLAIN.fullmatch(boot) else digest(boot), container)

    def ended(self, placement: PlacementView, container: datetime) -> bool:
        """Whether a report is of this boot though another container runs."""
        return not self.doubted and self._is_boot_of(placement) and self.container != container

    def alive(self, placement: PlacementView, container: datetime) -> bool:
        """Whether this boot has been seen to speak while this container ran."""
        speaks = self.doubted != _said(placement)
        return speaks and self._is_boot_of(placement) and self.container == container

    def _is_boot_of(self, placement: PlacementView) -> bool:
        return self.boot == Opening.of(placement, self.container).boot


def last_opening(pod: PodView) -> Opening | None:
    """What the gate's message says. An agent whose words imitate it fools its own gate with that, and no other."""
    found = _RECORD.search(pod.gate.message) if pod.gate is not None else None
    container = parse_time(found[2]) if found else None
    return Opening(found[1], container, found[3] or "") if found and container is not None else None


def whose(
    server: ContainerView, container: datetime, placement: PlacementView, agent: datetime, last: Opening | None
) -> Whose:
    """Which boot a report is of: by times of one node, by counting, by what the gate was opened for, in this order."""
    if agent < container:
        return Whose.EARLIER
    if placement.earlier_boots == server.restarts:
        # Each boot counts itself before it says anything, so one of an earlier container counts fewer.
        return Whose.THIS
    if last is not None and last.ended(placement, container):
        return Whose.EARLIER
    if placement.earlier_boots is None:
        return Whose.UNKNOWN if set_back(server, agent) else Whose.THIS
    return Whose.THIS if last is not None and last.alive(placement, container) else Whose.UNKNOWN


def remembered(
    opens: bool, placement: PlacementView, container: datetime, said_by: Whose, last: Opening | None
) -> Opening | None:
    """What the gate's message should say from now on: this boot if it opens the gate or only doubt keeps it shut."""
    this = Opening.of(placement, container)
    if opens:
        return this
    if said_by is not Whose.UNKNOWN:
        return last
    if placement.earlier_boots is None:
        return this
    if last is not None and (last.boot, last.container) == (this.boot, this.container):
        return last
    return replace(this, doubted=_said(placement))


def with_opening(message: str, opening: Opening | None) -> str:
    """A gate's message with what it was opened for last."""
    if opening is None:
        return message
    said = f", who said {opening.doubted}" if opening.doubted else ""
    return f"{message} [boot {opening.boot} of {timestamp(opening.container)}{said}]"


def set_back(server: ContainerView, agent: datetime) -> bool:
    """Whether the clock was set back between this container and the last, and the agent's start is of before that.

    For a boot that counts nothing and that no gate was opened for: what the kubelet remembers of the container before.
    """
    before, now = server.previous_start, server.started_at
    return before is not None and now is not None and now < before <= agent


def _said(placement: PlacementView) -> str:
    return digest(placement.status.to_json(exclude_none=True))
