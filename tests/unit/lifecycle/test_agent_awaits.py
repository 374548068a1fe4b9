"""A pod that the operator has said nothing about yet waits, with its probes answered, and ends when it is asked to."""

from __future__ import annotations

import os
import signal

import pytest

from stowplan_agent.cluster.reporter import ReporterError
from stowplan_agent.lifecycle import StartSettings
from stowplan_agent.lifecycle.agent import Agent
from stowplan_api.diffusion_deployment import DiffusionDeploymentSpec
from stowplan_api.residency_placement import ResidencyPlacementSpec, ResidencyPlacementStatus


class Silent:
    """A reporter to which no object comes; at the third question the pod is asked to end."""

    def __init__(self) -> None:
        self.asked = 0
        self.closed = False

    def read_spec(self, timeout: float | None = None) -> ResidencyPlacementSpec:
        assert timeout is not None, "whoever waits for ever does not hear that it is to end"
        self.asked += 1
        if self.asked == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        raise ReporterError("no spec")

    @property
    def status(self) -> ResidencyPlacementStatus:
        raise ReporterError("no status")

    def report(self, status: ResidencyPlacementStatus) -> None:
        raise AssertionError("there is nothing to report yet")

    def flush(self, timeout: float) -> bool:
        return True

    def close(self, timeout: float = 5.0) -> None:
        self.closed = True


def test_one_that_nobody_knows_yet_ends_when_asked_to(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = DiffusionDeploymentSpec.model_validate(
        {
            "model": {"source": "hf://a/b"},
            "workload": {"shapes": [{"name": "still", "width": 256, "height": 256, "steps": 2}]},
            "resources": {"memory": "8Gi"},
            "serving": {"port": port},
        }
    )
    agent, reporter = Agent(StartSettings(spec, "emulated"), None), Silent()
    monkeypatch.setattr(agent, "_reporter", lambda: reporter)
    assert agent.run() == 0
    assert (reporter.asked, reporter.closed) == (3, True)
    assert not agent.door.open
