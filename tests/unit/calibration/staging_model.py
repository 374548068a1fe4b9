"""The staging ring as a model: when copies of a row end, from how long its threads take to read and its link to send.

Time is computed event by event. As in `accelerators.staging_order`: pieces are given out in order, a copy's pieces go
on the link in any order, and none of them before the copy in front is wholly on it. Defaults are one H200 host's.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from dataclasses import dataclass, field

from stowplan_agent.accelerators.staging_memory import PIECE_BYTES, RING_BYTES


@dataclass
class RingModel:
    """Seconds and bytes a second. ``opening`` is what the first copy of all waits for."""

    link: float = 55e9
    read_seconds: float = 3.5e-3
    jitter: float = 0.3
    """By which share the seconds of a read vary."""
    threads: int = 14
    opening: float = 0.2
    seed: int = 0
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def ends(self, copies: int, nbytes: int) -> list[float]:
        """When each copy of a row ends, the first being queued at 0 on an idle ring."""
        begin, self.opening = self.opening, 0.0
        pieces = -(-nbytes // PIECE_BYTES)
        free = deque([0.0] * (RING_BYTES // PIECE_BYTES))
        reads = [(begin, thread, -1) for thread in range(self.threads)]
        waiting, given, sent, filled, link_free = [], 0, 0, [0] * copies, 0.0
        ends: list[float] = []
        while reads:
            now, thread, copy = heapq.heappop(reads)
            if copy >= 0:
                filled[copy] += 1
            while len(ends) < copies and filled[len(ends)]:
                filled[len(ends)] -= 1
                link_free = max(link_free, now) + PIECE_BYTES / self.link
                free.append(link_free)
                sent += 1
                if sent % pieces == 0:
                    ends.append(link_free)
            waiting.append(thread)
            while waiting and free and given < copies * pieces:
                lasts = self.read_seconds * (1 + self.jitter * self._random.uniform(-1, 1))
                heapq.heappush(reads, (max(now, free.popleft()) + lasts, waiting.pop(0), given // pieces))
                given += 1
        return ends
