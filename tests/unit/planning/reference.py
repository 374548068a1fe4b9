"""A slow second implementation of the run of a component: two engines, advanced from event to event.

It shares no code and no formula with the product: nothing is computed ahead, both engines work off what remains, and
compute goes 1/contention as fast exactly while a copy is in progress.
"""

from __future__ import annotations

from collections.abc import Sequence

Layer = tuple[float, int, float]
"""Seconds, ring (-1: on the device), copy seconds."""


def reference_seconds(
    passes: int, loose: float, layers: Sequence[Layer], slots: Sequence[int], contention: float
) -> float:
    blocks: list[tuple[float, int]] = []
    copies: list[tuple[int, float]] = []
    for _ in range(passes):
        blocks.append((loose, -1))
        for seconds, ring, copy in layers:
            blocks.append((seconds, ring))
            if ring >= 0:
                copies.append((ring, copy))
    free = list(slots)
    now = 0.0
    next_copy = done_copies = used_copies = 0
    copying: float | None = None
    for seconds, ring in blocks:
        left = seconds
        waiting = ring >= 0
        while True:
            if copying is None and next_copy < len(copies) and free[copies[next_copy][0]]:
                free[copies[next_copy][0]] -= 1
                copying = copies[next_copy][1]
                next_copy += 1
            if waiting and done_copies > used_copies:
                used_copies += 1
                waiting = False
            if not waiting and left <= 0:
                break
            if waiting:
                assert copying is not None, "compute waits for a copy that cannot start"
                step = copying
            elif copying is None:
                step = left
            else:
                step = min(copying, left * contention)
            now += step
            if not waiting:
                finished = copying is None or step >= left * contention
                left = 0.0 if finished else left - step / contention
            if copying is not None:
                copying = None if step >= copying else copying - step
                done_copies += copying is None
        if ring >= 0:
            free[ring] += 1
    return now
