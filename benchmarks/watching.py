"""What the metrics add to the passes of a request: the same request unwatched and watched, in pairs, and by itself.

Watched is as `Service.run` serves: an observer that records events at each call of a component and each streamed layer,
read when the device is done, and their sums told to the metrics. By itself: what the engine told the observer during
one request is told again to a new one, without the request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pairs import Pair, Took, in_turns, timed

STEPS = 4
"""Of a request: passes are what is measured, not what is before and behind them."""
Told = tuple[str, tuple[Any, ...]]


class Tape:
    """An observer that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[Told] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *arguments: self.told.append((name, arguments))


def watched_pairs(service: Any, count: int) -> tuple[list[Pair], list[Took], int]:
    """So many pairs, what watching takes by itself, and the passes of a request: calls of what is called most often."""
    from stowplan_agent.lifecycle.session import timeline_of
    from stowplan_agent.lifecycle.stage_seconds import StageSeconds
    from stowplan_agent.pipeline import PipelineRequest

    session, shape = service.prepared.session, service.spec.workload.shapes[0]
    single = PipelineRequest(shape.width, shape.height, shape.frames, STEPS, prompt="a red kite", seed=7)
    timeline = timeline_of(service.prepared.record, single)

    def unwatched(observer: Any = None) -> None:
        session.serve(single, timeline, lambda: False, observer)

    def summed(stages: StageSeconds) -> None:
        service.metrics.observe_stages(stages.seconds(), waited=stages.waited())
        service.metrics.set_streamed(session.engine.ledger.streamed_bytes)

    def watched() -> None:
        stages = StageSeconds(session.accelerator, service.streamed)
        unwatched(stages)
        summed(stages)

    def told_again() -> None:
        stages = StageSeconds(session.accelerator, service.streamed)
        for name, arguments in tape.told:
            getattr(stages, name)(*arguments)
        summed(stages)

    tape = Tape()
    unwatched(tape)
    calls = [arguments[0] for name, arguments in tape.told if name == "component_awaited"]
    found = in_turns(unwatched, watched, count)
    return found, [timed(told_again) for _ in range(200)], max(map(calls.count, calls))
