"""One run of a component over its layers: copy engines and a compute engine, and nothing else.

This is the recurrence of PLANNING.md, section 3. It promises the seconds of a run with several rings, several passes
and contention, exactly as the recurrence says; it knows nothing of records, placements or memory.

Two links copy, each in order: the host link fetches streamed layers, and with peers (section 6) the peer link swaps
what other ranks have of any layer that arrives; it is there when both are done. Either slows compute while it copies.

Three facts make it short and fast.

- A slot becomes free only when a layer ends, and layers run one after the other. So while a layer computes, no copy
  becomes possible that was not possible at its start: the copies that run beside it form one unbroken stretch from its
  start to the end of the last copy that has a slot, on either link. Contention is then one closed formula a layer.
- Layers that are not streamed free no slot and wait for nothing, so a stretch of them is one step.
- Passes repeat. As soon as the state at the end of a pass equals the state at the end of the pass before, every further
  pass takes the same seconds, up to the last ones, whose copies run out.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Final, NamedTuple

SAME_STATE: Final = 1e-12
"""Two states are the same if their times differ by less than this share of a pass: far below any measurement."""


class Layer(NamedTuple):
    """One layer of a pass, in running order."""

    seconds: float
    """Compute, alone on the device."""
    ring: int
    """Index of the ring that it arrives through; -1 for a layer that is on the device."""
    copy_seconds: float
    """Of the host link: latency and bytes over rate; 0 for a layer that is on the device, or on all of them."""
    swap_seconds: float = 0.0
    """Of the peer link."""


class Step(NamedTuple):
    """A layer that arrives, and the compute from its end to the next such one."""

    ring: int
    copy: float
    """Seconds of the host link."""
    seconds: float
    gap: float
    swap: float = 0.0
    """Seconds of the peer link."""


def run_seconds(passes: int, loose: float, layers: Sequence[Layer], slots: Sequence[int], contention: float) -> float:
    """Seconds of ``passes`` passes over ``layers``, from cold rings to the end of the last layer.

    ``loose`` is the compute of a pass before its first layer, ``slots`` the size of each ring, ``contention`` how much
    slower compute is while a copy runs. Copies run one at a time in the order in which layers run, across rings and
    passes; nothing is copied after its last use.
    """
    lead, streamed = _steps(loose, layers)
    return step_seconds(passes, lead, streamed, slots, contention)


def step_seconds(passes: int, lead: float, steps: Sequence[Step], slots: Sequence[int], contention: float) -> float:
    """`run_seconds` of a run that is already in steps; ``lead`` is the compute of a pass before the first of them."""
    if not steps or passes <= 0:
        return max(passes, 0) * lead
    return _Simulation(lead, steps, slots, contention).run(passes)


def copy_seconds(passes: int, layers: Sequence[Layer]) -> float:
    """Seconds in which the copies of such a run keep the host link busy."""
    return passes * sum(layer.copy_seconds for layer in layers)


def least_seconds(passes: int, loose: float, layers: Sequence[Layer], contention: float) -> float:
    """A lower bound of `run_seconds` that needs no simulation.

    On either link all copies run before the run ends, and compute beside them goes 1/contention as fast; compute idles
    until the first streamed layer is there; and what follows the last copy of a link runs when all of them are done.
    """
    compute = loose + sum(layer.seconds for layer in layers)
    bound, share = passes * compute, 1 - 1 / contention
    swaps = passes * sum(layer.swap_seconds for layer in layers)
    if swaps:
        _, arriving = _steps(loose, layers)
        bound = max(bound + swaps * share, swaps + arriving[-1].seconds + arriving[-1].gap)
    lead, streamed = _steps(loose, [layer if layer.copy_seconds else layer._replace(ring=-1) for layer in layers])
    if not streamed:
        return bound
    copies = copy_seconds(passes, layers)
    slowed = passes * compute + copies * share + max(0.0, streamed[0].copy - lead * contention) / contention
    return max(bound, slowed, copies + streamed[-1].seconds + streamed[-1].gap)


def _steps(loose: float, layers: Sequence[Layer]) -> tuple[float, list[Step]]:
    arriving: list[Layer] = []
    gaps = [loose]
    for layer in layers:
        if layer.ring < 0:
            gaps[-1] += layer.seconds
        else:
            arriving.append(layer)
            gaps.append(0.0)
    return gaps[0], [
        Step(layer.ring, layer.copy_seconds, layer.seconds, gap, layer.swap_seconds)
        for layer, gap in zip(arriving, gaps[1:], strict=True)
    ]


class _Simulation:
    """The state of both engines. Times count from the start of the pass that runs."""

    def __init__(self, lead: float, steps: Sequence[Step], slots: Sequence[int], contention: float) -> None:
        self.lead = lead
        self.steps = steps
        self.free = list(slots)
        of_ring = Counter(step.ring for step in steps)
        self.guard = max(-(-slots[ring] // count) for ring, count in of_ring.items())
        """No ring runs further ahead than its slots, so only in so many passes at the end a copy is left out."""
        self.contention = contention
        self.ready: deque[float] = deque()
        """Ends of the copies that no layer has used yet, in order."""
        self.fetched = self.swapped = 0.0
        """On each link, end of the last copy that has a slot."""
        self.head = 0
        """The step whose copy is next."""

    def run(self, passes: int) -> float:
        total = 0.0
        copies_left = self._begin(passes * len(self.steps))
        left = passes
        before: list[float] | None = None
        marks: list[int] | None = None
        while left:
            took, copies_left = self._pass(copies_left)
            total += took
            left -= 1
            state = [self.fetched, self.swapped, *self.ready]
            now_marks = [self.head, *self.free]
            # The pass that led from a state back to it is the pass that follows as well.
            if left > self.guard and marks == now_marks and before is not None and _close(before, state, took):
                skipped = left - self.guard
                total += skipped * took
                copies_left -= skipped * len(self.steps)
                left = self.guard
            before, marks = state, now_marks
        return total

    def _pass(self, copies_left: int) -> tuple[float, int]:
        steps, ready, free, slower = self.steps, self.ready, self.free, self.contention
        fetched, swapped, head = self.fetched, self.swapped, self.head
        copied = max(fetched, swapped)
        now = _computed(0.0, self.lead, copied, slower)
        for ring, _, seconds, gap, _ in steps:
            copy = ready.popleft()
            now = _computed(copy if copy > now else now, seconds, copied, slower)
            free[ring] += 1
            # Every copy whose slot is free starts; the first that has none holds up those behind it.
            while copies_left and free[steps[head].ring]:
                free[steps[head].ring] -= 1
                fetched = (now if now > fetched else fetched) + steps[head].copy
                swapped = (now if now > swapped else swapped) + steps[head].swap
                copied = fetched if fetched > swapped else swapped
                ready.append(copied)
                head = head + 1 if head + 1 < len(steps) else 0
                copies_left -= 1
            if gap:
                now = _computed(now, gap, copied, slower)
        self.head, self.fetched, self.swapped = head, max(fetched - now, 0.0), max(swapped - now, 0.0)
        for index, end in enumerate(ready):
            ready[index] = max(end - now, 0.0)
        return now, copies_left

    def _begin(self, copies_left: int) -> int:
        """Fill the cold rings before the first pass."""
        while copies_left and self.free[self.steps[self.head].ring]:
            self.free[self.steps[self.head].ring] -= 1
            self.fetched += self.steps[self.head].copy
            self.swapped += self.steps[self.head].swap
            self.ready.append(max(self.fetched, self.swapped))
            self.head = (self.head + 1) % len(self.steps)
            copies_left -= 1
        return copies_left


def _computed(now: float, seconds: float, copied: float, slower: float) -> float:
    """When so many seconds of compute end that begin ``now``, with copies beside them until ``copied``."""
    beside = copied - now
    if beside <= 0:
        return now + seconds
    if seconds * slower <= beside:
        return now + seconds * slower
    return now + seconds + beside * (1 - 1 / slower)


def _close(before: Sequence[float], after: Sequence[float], scale: float) -> bool:
    limit = SAME_STATE * scale
    return len(before) == len(after) and all(abs(a - b) <= limit for a, b in zip(before, after, strict=True))
