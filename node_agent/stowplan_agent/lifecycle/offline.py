"""The same start without a cluster and without serving: it ends with the record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

from stowplan_agent import __version__
from stowplan_agent.cluster.boot import new_agent
from stowplan_agent.cluster.local import LocalReporter
from stowplan_agent.lifecycle.progress import Progress
from stowplan_agent.lifecycle.settings import StartSettings
from stowplan_agent.lifecycle.startup import Startup
from stowplan_agent.lifecycle.threads import limit_threads
from stowplan_agent.serving.door import Door
from stowplan_agent.serving.metrics import AgentMetrics
from stowplan_api.diffusion_deployment import DiffusionDeploymentSpec
from stowplan_api.record import CalibrationRecord


def calibrate_offline(
    spec: DiffusionDeploymentSpec,
    accelerator: str,
    environment: Mapping[str, str],
    *,
    memory_limit: int | None = None,
) -> CalibrationRecord:
    """Run the phases up to the second warm-up; the record. Raises `StartError` in one sentence, and `FaultError`."""
    limit_threads()
    read = StartSettings.read(spec, environment, memory_limit=memory_limit)
    settings = replace(read, accelerator=accelerator, record_dir=None)  # a record is to be measured, not found
    reporter = LocalReporter(new_agent(datetime.now(UTC), __version__), memory_limit or 0)
    startup = Startup(settings, Progress(reporter, Door(), AgentMetrics()))
    try:
        if startup.run(until="WarmAgain") == "Failed":
            assert startup.error is not None, "a start that failed knows why"
            raise startup.error
        return startup.prepared.record
    finally:
        reporter.close()
        startup.close()
