"""Who may watch the engine's hooks: calibration does, without hooks of its own."""

from __future__ import annotations

from typing import Protocol


class Observer(Protocol):
    """Called on the thread that runs the pipeline, on the hot path: record an event, read a counter, nothing more."""

    def component_awaited(self, component: str, entry: str) -> None:
        """A component's entry was called; its weights may still have to come."""

    def component_entered(self, component: str, entry: str) -> None:
        """A component's entry (forward, encode, decode, generate) is about to run, its weights in place."""

    def component_left(self, component: str, entry: str) -> None:
        """The entry has returned or raised; weights that were only visitors may be gone."""

    def layer_awaited(self, component: str, group: str, layer: int) -> None:
        """A layer was called; compute may still have to wait for its weights."""

    def layer_entered(self, component: str, group: str, layer: int) -> None:
        """A layer is about to run, its weights in place."""

    def layer_left(self, component: str, group: str, layer: int) -> None:
        """The layer has returned or raised."""
