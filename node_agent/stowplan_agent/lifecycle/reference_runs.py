"""The reference of a start, and what its output differs by from itself where the model does not repeat itself.

Nobody asks until an output differs. Then the reference is run again, in its own placement: if it gives other bits there
too, how far its runs are apart is what any other run may differ by.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from stowplan_agent.pipeline.hosted import Frames
from stowplan_agent.transaction import Measured, Reference, distance, nearest, strays


class ReferenceRuns:
    """The runs of one start's reference that are known."""

    def __init__(self, reference: Reference) -> None:
        """Only the digest of the first run is known."""
        self.reference = reference
        self._runs: tuple[Frames, ...] = ()

    @property
    def spread_is_known(self) -> bool:
        """Whether the reference is known not to repeat itself."""
        return bool(self._runs)

    def learn(self, run: Callable[[], tuple[Measured, Frames]]) -> bool:
        """Run the reference once more, in its own placement, which must be in force: does it not repeat itself?

        If it does not, a third run says by how much. Two that agree with each other and not with the first are no
        spread: something has changed. Raises what ``run`` raises.
        """
        second, one = run()
        if second.digest == self.reference.digest:
            return False
        third, other = run()
        if third.digest == second.digest:
            return False
        self._runs = (one, other)
        self.reference = replace(self.reference, spread=distance(one, other))
        return True

    def widen(self, output: Frames | None) -> bool:
        """``output`` is one more run of the reference in its own placement; False where it cannot be one.

        None stands for the first run's own bits.
        """
        if output is not None:
            if self.strays(output):
                return False
            most = max(distance(output, run) for run in self._runs)
            self._runs = (*self._runs, output)
            self.reference = replace(self.reference, spread=max(most, self.reference.spread or 0.0))
        return True

    def strays(self, output: Frames | None) -> bool:
        """Whether an output is too far from all runs to be of this model; None stands for the first run's bits."""
        return output is not None and strays(output, self._runs, self.reference.spread or 0.0)

    def compared(self, measured: Measured, output: Frames | None) -> Measured:
        """The measurement, with how far its output is from the nearest run where that can be said."""
        if not self._runs or output is None or measured.digest == self.reference.digest:
            return measured
        return replace(measured, distance=nearest(output, self._runs))
