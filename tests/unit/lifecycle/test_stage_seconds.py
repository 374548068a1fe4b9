"""Seconds by component and waits of one request, on a clock that the test turns."""

from __future__ import annotations

from typing import Any

from stowplan_agent.lifecycle.stage_seconds import StageSeconds, streamed_components
from stowplan_api.placement import ComponentPlacement, GroupPlacement, Placement
from stowplan_api.record import Component, Group


class TurnedClock:
    """The two members of an accelerator that are asked for."""

    def __init__(self) -> None:
        self.now, self.recorded = 0.0, 0

    def record(self) -> float:
        self.recorded += 1
        return self.now

    def elapsed(self, start: float, end: float) -> float:
        return end - start


def call(
    stages: StageSeconds, clock: TurnedClock, name: str, *, load: float, layers: int = 1, stall: float = 0
) -> None:
    stages.component_awaited(name, "forward")
    clock.now += load
    stages.component_entered(name, "forward")
    for layer in range(layers):
        stages.layer_awaited(name, "blocks", layer)
        clock.now += stall
        stages.layer_entered(name, "blocks", layer)
        clock.now += 1.0
        stages.layer_left(name, "blocks", layer)
    stages.component_left(name, "forward")


def watch(streamed: set[str]) -> tuple[StageSeconds, TurnedClock]:
    clock: Any = TurnedClock()
    return StageSeconds(clock, frozenset(streamed)), clock


def test_calls_of_a_component_add_up_and_what_lies_between_is_nobodys() -> None:
    stages, clock = watch({"transformer"})
    call(stages, clock, "text_encoder", load=0.5)
    for _ in range(3):
        clock.now += 100.0
        call(stages, clock, "transformer", load=0.0, layers=2, stall=0.25)
    assert stages.seconds() == {"text_encoder": 1.5, "transformer": 3 * 2.5}
    assert stages.waited() == 0.5 + 3 * 2 * 0.25


def test_layers_of_a_component_that_is_all_there_cost_no_event() -> None:
    stages, clock = watch(set())
    call(stages, clock, "transformer", load=0.0, layers=50)
    assert clock.recorded == 3
    assert stages.seconds() == {"transformer": 50.0} and stages.waited() == 0.0


def test_one_component_inside_another_is_the_others_time() -> None:
    stages, clock = watch(set())
    stages.component_awaited("vae", "decode")
    call(stages, clock, "upsampler", load=2.0)
    stages.component_left("vae", "decode")
    assert stages.seconds() == {"vae": 3.0}


def test_what_streams_is_what_has_layers_that_are_not_resident() -> None:
    def layerwise(name: str, resident: int) -> ComponentPlacement:
        group = GroupPlacement(name="blocks", resident_layers=resident, pinned_layers=(0,))
        return ComponentPlacement(name=name, mode="Layerwise", groups=(group,))

    parts = [Component(name=name, loose_bytes=0, groups=(Group(name="blocks", layer_bytes=(1, 1)),)) for name in "abc"]
    placed = (layerwise("a", 1), layerwise("b", 2), ComponentPlacement(name="c", mode="Resident"))
    assert streamed_components(parts, Placement(components=placed)) == {"a"}
