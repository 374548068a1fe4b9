"""A start of the agent inside the test's own process: real pipeline, real engine, emulated card, nothing pretended."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from stowplan_agent.cli.specification import local_spec
from stowplan_agent.cluster.boot import new_agent
from stowplan_agent.cluster.local import LocalReporter
from stowplan_agent.lifecycle import Progress, StartSettings, Startup
from stowplan_agent.lifecycle.deadlines import phase_deadlines
from stowplan_agent.lifecycle.preparation import Preparation
from stowplan_agent.lifecycle.service import Service
from stowplan_agent.lifecycle.switch import KillSwitch
from stowplan_agent.serving.door import Door
from stowplan_agent.serving.drift import DriftWatch
from stowplan_agent.serving.metrics import AgentMetrics
from stowplan_agent.serving.requests import GenerationRequest
from stowplan_agent.transaction import Faults
from stowplan_api.conditions import Condition, find
from stowplan_api.diffusion_deployment import DiffusionDeploymentSpec
from stowplan_api.residency_placement import Phase, ResidencyPlacementStatus

RESERVE = "1Mi"
SHAPES = {"tiny-wan": "32x32x5@2", "tiny-wan-two-experts": "32x32x5@2", "tiny-flux": "32x32@2"}
"""The lightest shape of each model that has all its parts: several frames, several steps."""


@dataclass
class Start:
    """One start, and everything that can be observed of it."""

    settings: StartSettings
    startup: Startup
    progress: Progress
    phase: Phase

    @property
    def status(self) -> ResidencyPlacementStatus:
        return self.progress.status

    @property
    def error(self) -> str:
        return str(self.startup.error)

    @property
    def phases(self) -> list[str]:
        return [phase.name for phase in self.status.phases]

    def condition(self, type_: str) -> Condition:
        found = find(self.status.conditions, type_)
        assert found is not None, f"no condition {type_}"
        return found

    def metric(self, name: str, **labels: str) -> float | None:
        return self.progress.metrics.registry.get_sample_value(f"stowplan_{name}", labels)

    def weights_on_device(self) -> int:
        return self.startup.prepared.session.accelerator.counters().weights

    def service(self, drift: DriftWatch | None = None) -> Service:
        spec, checkpoint = self.settings.spec, self.startup.preparation.checkpoint
        return Service(self.startup.prepared, spec, checkpoint, self.progress.metrics, drift)

    def request(self, **fields: Any) -> GenerationRequest:
        """A user's request at the default shape, unless ``fields`` say otherwise."""
        shape = self.settings.spec.workload.shapes[0]
        request = GenerationRequest(
            kind="image" if shape.frames == 1 else "video",
            prompt="a red kite over the dunes",
            negative_prompt=None,
            width=shape.width,
            height=shape.height,
            frames=shape.frames,
            steps=shape.steps,
            seed=7,
            guidance=None,
        )
        return replace(request, **fields)

    def output(self) -> bytes:
        """The frames of one such request."""
        return self.service().run(self.request(), lambda: False).frames.tobytes()


class Measured(Preparation):
    """A preparation that was run before: its phases have nothing left to do, the device is as it was left."""

    def __init__(self, before: Preparation) -> None:
        self.__dict__ = before.__dict__

    def _nothing(self) -> None:
        return None

    take_inventory = load = warm = probe = warm_again = _nothing


def settings_of(
    path: Path,
    device_memory: str,
    *,
    shapes: Sequence[str] = (),
    spec: Mapping[str, Any] | None = None,
    faults: str = "",
    environment: Mapping[str, str] | None = None,
    memory_limit: int | None = 8 << 30,
) -> StartSettings:
    """Settings on an emulated card of ``device_memory`` with a reserve of `RESERVE`; ``spec`` is laid over the rest."""
    written = local_spec(
        path,
        list(shapes) or [SHAPES[path.name]],
        dtype="float32",
        device_memory=device_memory,
        device_reserve=RESERVE,
        host_memory=None,
    )
    if spec is not None:
        written = DiffusionDeploymentSpec.model_validate(_laid_over(written.to_json(exclude_none=True), spec))
    known = {"STOWPLAN_ACCELERATOR": "emulated", "STOWPLAN_FAULTS": faults} | dict(environment or {})
    return StartSettings.read(written, known, memory_limit=memory_limit)


def begin(
    settings: StartSettings,
    *,
    stop: Callable[[], bool] = lambda: False,
    switch: KillSwitch | None = None,
    preparation: Preparation | None = None,
) -> tuple[Startup, Progress]:
    """A start that has not begun, and its account."""
    torch.set_num_threads(1)
    reporter = LocalReporter(new_agent(datetime.now(UTC), "0"), 8 << 30, io.StringIO())
    progress = Progress(reporter, Door(), AgentMetrics())
    return Startup(settings, progress, stop=stop, switch=switch, preparation=preparation), progress


def start(settings: StartSettings) -> Start:
    """Run a start to its end."""
    startup, progress = begin(settings)
    return Start(settings, startup, progress, startup.run())


def begin_again(
    before: Start,
    *,
    faults: str | Faults = "",
    spec: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    stop: Callable[[], bool] = lambda: False,
    switch: KillSwitch | None = None,
) -> tuple[StartSettings, Startup, Progress]:
    """The later phases of a start once more, on what ``before`` measured, from its seed placement; not begun yet.

    Of ``environment`` only the deadlines count.
    """
    settings = replace(before.settings, faults=faults if isinstance(faults, Faults) else Faults(faults))
    if spec is not None:
        laid = _laid_over(settings.spec.to_json(exclude_none=True), spec)
        settings = replace(settings, spec=DiffusionDeploymentSpec.model_validate(laid))
    if environment is not None:
        deadlines = phase_deadlines(settings.spec, settings.memory_limit, environment)
        settings = replace(settings, deadlines=deadlines)
    return_to_seed(before)
    again = Measured(before.startup.preparation)
    return settings, *begin(settings, stop=stop, switch=switch, preparation=again)


def start_again(before: Start, *, faults: str | Faults = "", spec: Mapping[str, Any] | None = None) -> Start:
    """As `begin_again`, run to its end."""
    settings, startup, progress = begin_again(before, faults=faults, spec=spec)
    return Start(settings, startup, progress, startup.run())


def return_to_seed(started: Start) -> None:
    """Put everything where a start begins to plan."""
    prepared = started.startup.prepared
    for entry in prepared.seed.components:
        prepared.session.engine.place(entry)


def _laid_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        both = isinstance(value, Mapping) and isinstance(under, Mapping)
        merged[key] = _laid_over(under, value) if both and under is not None else value
    return merged
