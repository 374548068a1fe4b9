"""Which boot a gate was opened for last: what tells an earlier boot's word from this one's, whatever clocks do.

A report is of the process that runs if its agent started no earlier than its container. Both times are of one node,
whose clock may be set back: the next container then starts "before" the agent of the last one, whose word would pass
for its own. So an opening is remembered, where both an API server and a restarted operator find it: in the gate's own
message. A boot that was opened for one container is never this boot of another.

It is remembered with the opening and not sooner: an opening holds for the very version of the pod that was judged, so
the container is the one that the kubelet reported, and no report that came a moment before its container's is taken for
one of the container before.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from stowplan_api.conditions import timestamp
from stowplan_operator.placement import PlacementView
from stowplan_operator.pod import ContainerView, PodView, parse_time
from stowplan_operator.render.naming import digest

_RECORD: Final = re.compile(r" \[boot ([0-9a-f]+) of (\S+)\]$")
_PLAIN: Final = re.compile(r"[0-9a-f]{8,64}")


@dataclass(frozen=True)
class Opening:
    """A boot, by its id, and when the container started that it was the boot of."""

    boot: str
    container: datetime

    @classmethod
    def of(cls, placement: PlacementView, container: datetime) -> Opening:
        """The opening for what this report proves. An id that is none of ours is text of the agent's: its digest."""
        boot = placement.boot_id
        return cls(boot if _PLAIN.fullmatch(boot) else digest(boot), container)

    def ended(self, placement: PlacementView, container: datetime) -> bool:
        """Whether a report is of this boot though another container runs."""
        return self.boot == Opening.of(placement, container).boot and self.container != container


def last_opening(pod: PodView) -> Opening | None:
    """What the gate's message says. An agent whose words imitate it can close its own gate with that, and no more."""
    found = _RECORD.search(pod.gate.message) if pod.gate is not None else None
    container = parse_time(found[2]) if found else None
    return Opening(found[1], container) if found and container is not None else None


def remembered(opens: bool, pod: PodView, placement: PlacementView | None, last: Opening | None) -> Opening | None:
    """What the gate's message should say from now on: this boot if it opens the gate or only doubt keeps it shut."""
    server = pod.server
    if placement is None or placement.started_at is None or server is None or server.started_at is None:
        return last
    doubted = set_back(server, placement.started_at) and not (last and last.ended(placement, server.started_at))
    return Opening.of(placement, server.started_at) if opens or doubted else last


def with_opening(message: str, opening: Opening | None) -> str:
    """A gate's message with what it was opened for last."""
    return message if opening is None else f"{message} [boot {opening.boot} of {timestamp(opening.container)}]"


def set_back(server: ContainerView, agent: datetime) -> bool:
    """Whether the clock was set back between this container and the last, and the agent's start is of before that.

    For a boot that no gate was opened for: what the kubelet remembers of the container before this one.
    """
    before, now = server.previous_start, server.started_at
    return before is not None and now is not None and now < before <= agent
