"""Seconds of the best placement on many sizes of card, without the placements.

A larger card is never slower, for what fits a smaller one fits it too. So sizes are asked for from both ends to the
middle: what is best on a smaller card is known to a larger one, what is best on a larger one is the least that a
smaller one can reach, and between two sizes with the same seconds nothing is asked at all. No ties are broken, so
whatever is no faster than the best known is ruled out.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from stowplan_agent.planning.bounded import ROUNDING
from stowplan_agent.planning.branches import Branches
from stowplan_agent.planning.limits import with_device_memory
from stowplan_agent.planning.setting import setting_of
from stowplan_api.record import CalibrationRecord


def seconds_by_memory(record: CalibrationRecord, sizes: Iterable[int]) -> dict[int, float | None]:
    """Seconds of the best placement on cards of each of ``sizes`` bytes; None where none fits.

    What is priced for one card is known for all, so this is much faster than as many plans.
    """
    asked = list(sizes)
    found = _Sizes(record).found(sorted(set(asked)))
    return {size: found[size] if np.isfinite(found[size]) else None for size in asked}


class _Sizes:
    """The sizes of one record. Seconds are infinite where nothing fits."""

    def __init__(self, record: CalibrationRecord) -> None:
        self.record, self.setting = record, setting_of(record)
        self.branches = Branches(self.setting)
        self.least = sum(space.least[0] for space in self.setting.spaces)
        """Seconds of components that nothing is below, on any card."""

    def found(self, sizes: list[int]) -> dict[int, float]:
        """Seconds of each of ``sizes``, which rise."""
        if not sizes:
            return {}
        between = self.setting.between
        seconds = {sizes[-1]: self._fastest(sizes[-1], np.inf, self.least)}
        seconds[sizes[0]] = self._fastest(sizes[0], np.inf, seconds[sizes[-1]])
        open_ = [(0, len(sizes) - 1)]
        while open_:
            low, high = open_.pop()
            if high - low < 2:
                continue
            known, least = seconds[sizes[low]], seconds[sizes[high]]
            if known == least or known <= least + ROUNDING * (least + between):
                seconds |= dict.fromkeys(sizes[low + 1 : high], known)
                continue
            middle = (low + high) // 2
            seconds[sizes[middle]] = self._fastest(sizes[middle], known, least)
            open_ += [(low, middle), (middle, high)]
        return {size: one + between for size, one in seconds.items()}

    def _fastest(self, size: int, known: float, least: float) -> float:
        """Seconds of the best selection on cards of one size: at most the ``known`` ones, and not below ``least``."""
        record, branches = with_device_memory(self.record, size), self.branches
        plain = branches.begun(branches.nothing, record)
        plain.known, plain.only_faster = known, True
        if not plain.run():
            return known
        best, freed = plain.goal(), branches.freed(record, {})
        for branch in branches.worth_a_search(record, plain, freed):
            if best <= least + ROUNDING * (least + self.setting.between):
                break
            if freed.hopeful(branch, plain, best):
                search = branches.begun(branch, record)
                search.only_faster = True
                search.beside(best, plain.dual.vector)
                best = plain.known = search.goal()
        return best
