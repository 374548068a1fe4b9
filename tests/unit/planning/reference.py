"""A slow second implementation of the run of a component: three engines, advanced from event to event.

It shares no code and no formula with the product: nothing is computed ahead, all engines work off what remains, and
compute goes 1/contention as fast exactly while a copy is in progress on either link.
"""

from __future__ import annotations

from collections.abc import Sequence

Layer = tuple[float, int, float, float]
"""Seconds, ring (-1: on the device), seconds of the host link, seconds of the peer link."""


class Link:
    """One link: what it copies, and how much of it is left, in order."""

    def __init__(self) -> None:
        self.left: list[float] = []
        self.done = 0

    @property
    def busy(self) -> float | None:
        """Seconds that are left of what it copies; None where it has nothing to do."""
        return self.left[self.done] if self.done < len(self.left) else None

    def advance(self, step: float) -> None:
        if self.busy is not None:
            self.left[self.done] -= step
        self.skip()

    def skip(self) -> None:
        while self.busy is not None and self.busy <= 0:
            self.done += 1


def reference_seconds(
    passes: int, loose: float, layers: Sequence[Layer], slots: Sequence[int], contention: float
) -> float:
    blocks: list[tuple[float, int]] = []
    copies: list[tuple[int, float, float]] = []
    for _ in range(passes):
        blocks.append((loose, -1))
        for seconds, ring, *links in layers:
            blocks.append((seconds, ring))
            if ring >= 0:
                copies.append((ring, links[0], links[1]))
    free = list(slots)
    now = 0.0
    used_copies = 0
    host, peer = Link(), Link()
    for seconds, ring in blocks:
        left = seconds
        waiting = ring >= 0
        while True:
            while len(host.left) < len(copies) and free[copies[len(host.left)][0]]:
                through, fetch, swap = copies[len(host.left)]
                free[through] -= 1
                host.left.append(fetch)
                peer.left.append(swap)
                host.skip()
                peer.skip()
            if waiting and min(host.done, peer.done) > used_copies:
                used_copies += 1
                waiting = False
            if not waiting and left <= 0:
                break
            ends = [link.busy for link in (host, peer) if link.busy is not None]
            if waiting:
                assert ends, "compute waits for a copy that cannot start"
                step = min(ends)
            elif not ends:
                step = left
            else:
                step = min(*ends, left * contention)
            now += step
            if not waiting:
                finished = not ends or step >= left * contention
                left = 0.0 if finished else left - step / contention
            host.advance(step)
            peer.advance(step)
        if ring >= 0:
            free[ring] += 1
    return now
