"""Watching one request: which components ran when, for how long, and how high activations rose.

The watch is an `Observer` of the engine's hooks. On the hot path it only records events and reads counters; seconds are
worked out afterwards (`observation`). Consecutive calls of one component are one interval; what lies between two
different components is an interval too, without a component.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from stowplan_agent.accelerators import Accelerator, Event
from stowplan_agent.accelerators.interface import MemoryCounters
from stowplan_agent.calibration.errors import CalibrationError

Span = tuple[Event, Event]


@dataclass
class WatchedInterval:
    """One interval as it was watched. Events are read only after the request."""

    component: str | None
    entry: str
    start: Event
    end: Event
    calls: int = 0
    activation_bytes: int = 0
    peak: int = 0
    """Of a fresh watch: the most bytes of the allocator that were in use at once, weights included."""
    reserved_peak: int = 0
    """Of a fresh watch: the most that the allocator had taken from the device."""
    layers: defaultdict[tuple[str, int], list[Span]] = field(default_factory=lambda: defaultdict(list))
    waits: list[Span] = field(default_factory=list)
    """Stretches in which compute stood still for a copy."""
    streamed_bytes: int = 0


class Watch:
    """Watches one request, from `begin` to `finish`."""

    def __init__(self, accelerator: Accelerator, streamed_bytes: Callable[[], int], *, fresh: bool = False) -> None:
        """``streamed_bytes`` reads the engine's count of all bytes copied so far.

        ``fresh``: each interval begins with an allocator that keeps nothing, so that its reserved peak is its own. That
        takes time, and the seconds are not those of a request that is served.
        """
        self.intervals: list[WatchedInterval] = []
        self.peak = 0
        """The most bytes of the allocator that the request held at once, weights included; known once it has ended."""
        self.reserved_peak = 0
        """The most that the allocator took from the device."""
        self._accelerator = accelerator
        self._fresh = fresh
        self._streamed = streamed_bytes
        self._awaited: Event | None = None
        self._entered: Event | None = None
        self._gap: WatchedInterval | None = None
        self._streamed_before = 0
        self._raised = False
        """The last component was left by an exception, and nothing has run since."""

    def begin(self) -> None:
        """The request begins."""
        self._open_gap("prepare")

    def finish(self) -> None:
        """The request has ended: what ran after the last component is an interval of its own."""
        gap = self._close_gap()
        gap.entry = "finish"
        self.intervals.append(gap)

    def running(self) -> str:
        """What runs now, for a message: the name of the component, or of the stretch between two."""
        if self._gap is not None and not self._raised:
            last = self.intervals[-1].component if self.intervals else None
            return f"the interval after {last}" if last else "the interval before the first component"
        current = self.intervals[-1]
        return f"interval {current.component}.{current.entry}"

    def component_awaited(self, component: str, entry: str) -> None:
        """A component was called: the gap before it ends here, its loads come next.

        Raises `CalibrationError` for a component inside another: a record has one component an interval.
        """
        if self._gap is None:
            raise CalibrationError(
                f"component {component} is called inside component {self.intervals[-1].component}, and only components "
                "that run one after another can be measured; load the pipeline without one of them"
            )
        gap = self._close_gap()
        self._raised = False
        last = self.intervals[-1] if self.intervals else None
        if last is not None and last.component == component:
            # The gap belongs to the interval: a scheduler's step between two calls of a denoiser.
            last.activation_bytes = max(last.activation_bytes, gap.activation_bytes)
        else:
            self.intervals.append(gap)
            if self._fresh:
                self._accelerator.empty_cache()
            here = self._accelerator.record()
            self.intervals.append(WatchedInterval(component, entry, here, here))
        self._awaited = self._accelerator.record()

    def component_entered(self, component: str, entry: str) -> None:
        """Its weights are in place."""
        current = self.intervals[-1]
        now = self._accelerator.record()
        if current.calls == 0:
            current.start = now
        elif self._awaited is not None:
            current.waits.append((self._awaited, now))
        current.calls += 1
        self._note_peaks()
        self._accelerator.reset_peaks()
        self._streamed_before = self._streamed()

    def component_left(self, component: str, entry: str) -> None:
        """The call is over; a gap begins."""
        # Hooks that are always called run while the exception of the call is being handled.
        self._raised = sys.exc_info()[0] is not None
        current = self.intervals[-1]
        current.end = self._accelerator.record()
        current.streamed_bytes += self._streamed() - self._streamed_before
        counters = self._note_peaks()
        current.activation_bytes = max(current.activation_bytes, counters.activation_peak)
        if self._fresh:
            current.peak = max(current.peak, counters.peak)
            current.reserved_peak = max(current.reserved_peak, counters.reserved_peak)
        self._open_gap("between")

    def layer_awaited(self, component: str, group: str, layer: int) -> None:
        """A layer was called."""
        self._awaited = self._accelerator.record()

    def layer_entered(self, component: str, group: str, layer: int) -> None:
        """Its weights are in place."""
        self._entered = self._accelerator.record()
        if self._awaited is not None:
            self.intervals[-1].waits.append((self._awaited, self._entered))

    def layer_left(self, component: str, group: str, layer: int) -> None:
        """The layer is over."""
        if self._entered is not None:
            self.intervals[-1].layers[group, layer].append((self._entered, self._accelerator.record()))

    def _open_gap(self, entry: str) -> None:
        here = self._accelerator.record()
        self._gap = WatchedInterval(None, entry, here, here, calls=1)
        self._accelerator.reset_peaks()

    def _close_gap(self) -> WatchedInterval:
        gap = self._gap
        assert gap is not None, "a gap is open whenever no component runs"
        gap.end = self._accelerator.record()
        gap.activation_bytes = self._note_peaks().activation_peak
        self._gap = None
        return gap

    def _note_peaks(self) -> MemoryCounters:
        """Keep the request's own peaks, which are lost whenever an interval's begin; returns the counters."""
        counters = self._accelerator.counters()
        self.peak = max(self.peak, counters.peak)
        self.reserved_peak = max(self.reserved_peak, counters.reserved_peak)
        return counters
