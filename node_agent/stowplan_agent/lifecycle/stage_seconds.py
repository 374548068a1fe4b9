"""Where the seconds of a served request go: by component, and how long compute stood still for weights.

An `Observer` that does little enough to watch every request: two events a call of a component, and two more a layer
only where layers are streamed. Events are read once the device is done with the request, never in a pass.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from stowplan_agent.accelerators import Accelerator, Event
from stowplan_api.placement import Placement
from stowplan_api.record import Component

Span = tuple[Event, Event]


class StageSeconds:
    """Watches one request. Read it after the request, with the device synchronized."""

    def __init__(self, accelerator: Accelerator, streamed: frozenset[str] = frozenset()) -> None:
        """``streamed`` are the components of which some layers are copied in while they run."""
        self._accelerator: Final = accelerator
        self._streamed: Final = streamed
        self._calls: defaultdict[str, list[Span]] = defaultdict(list)
        self._waits: list[Span] = []
        self._outermost: str | None = None
        self._called: Event | None = None
        self._awaited: Event | None = None

    def seconds(self) -> dict[str, float]:
        """Seconds of each component's calls, waiting for its weights included; one inside another is the other's."""
        return {name: self._sum(spans) for name, spans in self._calls.items()}

    def calls(self) -> dict[str, int]:
        """How often each component was called."""
        return {name: len(spans) for name, spans in self._calls.items()}

    def waited(self) -> float:
        """Seconds in which compute stood still because weights were not there yet."""
        return self._sum(self._waits)

    def component_awaited(self, component: str, entry: str) -> None:
        """A component was called."""
        if self._outermost is None:
            self._outermost, self._called = component, self._accelerator.record()

    def component_entered(self, component: str, entry: str) -> None:
        """Its weights are in place."""
        if self._outermost == component and self._called is not None:
            self._waits.append((self._called, self._accelerator.record()))

    def component_left(self, component: str, entry: str) -> None:
        """The call is over."""
        if self._outermost == component and self._called is not None:
            self._calls[component].append((self._called, self._accelerator.record()))
            self._outermost = self._called = None

    def layer_awaited(self, component: str, group: str, layer: int) -> None:
        """A layer was called."""
        self._awaited = self._accelerator.record() if component in self._streamed else None

    def layer_entered(self, component: str, group: str, layer: int) -> None:
        """Its weights are in place."""
        if self._awaited is not None:
            self._waits.append((self._awaited, self._accelerator.record()))

    def layer_left(self, component: str, group: str, layer: int) -> None:
        """The layer is over, which is nothing to note."""

    def _sum(self, spans: Iterable[Span]) -> float:
        return sum(self._accelerator.elapsed(start, end) for start, end in spans)


def streamed_components(components: Iterable[Component], placement: Placement) -> frozenset[str]:
    """The components of which a placement copies layers in while they run."""
    entries = {entry.name: entry for entry in placement.components}
    return frozenset(
        part.name
        for part in components
        for resident, group in zip(entries[part.name].groups or (), part.groups, strict=False)
        if resident.resident_layers < len(group.layer_bytes)
    )
