"""Whether the ranks' streams still keep step: a rank that stands still holds up all others, and says nothing. Pure.

Streams wait for words of the board, and no event of any device tells the host of it. At rest all ranks have come to the
same turn; ranks that have not, and do not move either, wait for one of them in vain.
"""

from __future__ import annotations

from dataclasses import dataclass

Counters = tuple[tuple[int, int], ...]
"""Of each rank: turns fetched, turns swapped."""


@dataclass(frozen=True)
class Pace:
    """What the counters were when they last moved, and since when (seconds)."""

    counters: Counters
    since: float

    def look(self, counters: Counters, now: float, patience: float) -> tuple[Pace, str | None]:
        """The next state; and who holds up the others, in one sentence, if that has gone on for ``patience``."""
        if counters != self.counters:
            return Pace(counters, now), None
        if len(set(counters)) <= 1 or now - self.since < patience:
            return self, None
        behind = min(range(len(counters)), key=lambda rank: counters[rank])
        ahead = max(counters)
        return self, (
            f"rank {behind} has stood at turn {counters[behind][0]} of the exchange for {now - self.since:.0f} s while "
            f"another one waits at {ahead[0]}"
        )
