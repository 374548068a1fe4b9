"""The agent's process: serve probes first, then start, then serve requests, until asked to stop.

A start that fails leaves the process alive with its door shut and its reason in the status: restarting would only
measure the same again. A rollback that fails ends the process, since nothing is known to be good any more.
"""

from __future__ import annotations

import logging
import signal
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from queue import Empty, SimpleQueue
from tempfile import gettempdir
from typing import Final

from stowplan_agent import __version__, switch_signal
from stowplan_agent.cluster.boot import count_boot, new_agent
from stowplan_agent.cluster.client import PlacementClient, in_cluster
from stowplan_agent.cluster.identity import PodIdentity
from stowplan_agent.cluster.local import LocalReporter
from stowplan_agent.cluster.reporter import Reporter, ReporterError
from stowplan_agent.cluster.status_reporter import StatusReporter
from stowplan_agent.inventory.frames import frame_contract
from stowplan_agent.lifecycle.errors import RollbackFailed
from stowplan_agent.lifecycle.kind_of_start import start_of
from stowplan_agent.lifecycle.orders import END, RECALL
from stowplan_agent.lifecycle.phases import SERVING
from stowplan_agent.lifecycle.progress import Progress
from stowplan_agent.lifecycle.residency import residency_of
from stowplan_agent.lifecycle.service import Service, serving_defaults
from stowplan_agent.lifecycle.settings import StartSettings
from stowplan_agent.lifecycle.startup import Startup
from stowplan_agent.lifecycle.switch import KillSwitch
from stowplan_agent.lifecycle.warm_start import StoredStart
from stowplan_agent.pipeline.request import Stopped
from stowplan_agent.serving.app import create_app
from stowplan_agent.serving.bodies import ServingDefaults
from stowplan_agent.serving.door import Door
from stowplan_agent.serving.drain import ANSWERS, STEP_SECONDS, drain, give_up
from stowplan_agent.serving.drift import DriftWatch
from stowplan_agent.serving.metrics import AgentMetrics
from stowplan_agent.serving.outgoing import Outgoing
from stowplan_agent.serving.queue import RequestQueue
from stowplan_agent.serving.residency import Residency
from stowplan_agent.serving.server import start_server
from stowplan_agent.serving.settings import ServingSettings
from stowplan_agent.serving.shelf import Shelf
from stowplan_api.contract import ROLLBACK_FAILED_EXIT, PlacementCondition, PlacementReason
from stowplan_api.residency_placement import Phase

_log = logging.getLogger(__name__)
ASKED: Final = "the agent was asked to stop"
FLUSH_SECONDS: Final = 10.0
PAUSE_SECONDS: Final = 0.5
"""Between looks, while something is waited for, at whether the process is to end."""


class Agent:
    """One process. `run` returns its exit code."""

    def __init__(self, settings: StartSettings, identity: PodIdentity | None) -> None:
        """``identity`` is None outside a pod: then phases are printed and nothing is written to a cluster."""
        self._settings = settings
        self._identity = identity
        self._stopped = self._hurried = False
        self._leads = False
        """Whether all ranks have started, and the others wait for orders."""
        self._switch = KillSwitch(thrown=settings.disabled)
        self._told: SimpleQueue[int] = SimpleQueue()
        """Signals that came. A handler may run in the middle of anything, an Event's own lock held included: this queue
        is made for that, and flags are plain."""
        self._stored: StoredStart | None = None
        self._defaults: ServingDefaults | None = None
        self.door = Door()
        self.metrics = AgentMetrics()
        self._serving = ServingSettings.read(settings.environment)
        self.queue = RequestQueue(
            limit=self._serving.queue_limit, metrics=self.metrics, shelf=Shelf(most_bytes=self._serving.results_bytes)
        )
        self._outgoing = Outgoing()
        self._residency: Residency | None = None

    def run(self) -> int:
        """Start, serve, and stop at SIGTERM or SIGINT. 0 after a clean stop, 70 if rolling back failed.

        Outside a pod there is nobody to read a status: there a start that failed raises its `StartError`.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._hear)
        switch_signal.hear(self._hear)
        app = create_app(
            self.door,
            self.queue,
            self.metrics,
            lambda: self._defaults,
            stored=self._stored_start,
            residency=lambda: self._residency,
            deadline=self._serving.deadline,
            outgoing=self._outgoing,
        )
        server = start_server(app, self._settings.spec.serving.port)
        reporter = self._reporter()
        try:
            return self._start_and_serve(reporter)
        finally:
            self.door.close("the agent stops")
            if self.queue.stop(STEP_SECONDS) and self._leads:
                self._settings.company.order(END)
            server.stop(ANSWERS)
            self.queue.shelf.close()
            reporter.close(FLUSH_SECONDS)

    def _start_and_serve(self, reporter: Reporter) -> int:
        if not self._is_awaited(reporter):
            return 0
        progress = Progress(reporter, self.door, self.metrics)
        startup = start_of(self._settings, progress, stop=lambda: self._stopped, switch=self._switch)
        self._residency = residency_of(startup, progress)
        try:
            phase = startup.run()
            self._leads = True
            if phase in SERVING:
                self._open(startup, progress)
                progress.open_door()
            elif self._identity is None:
                assert startup.error is not None, "a start that failed knows why"
                raise startup.error
            self._until_stopped(startup, progress)
            self._drain(progress)
        except RollbackFailed as error:
            _log.error("%s", error)
            reporter.flush(FLUSH_SECONDS)
            return ROLLBACK_FAILED_EXIT
        except Stopped:
            _log.info("asked to stop before anything was placed to serve")
        progress.condition(PlacementCondition.READY, "False", PlacementReason.STOPPING, ASKED)
        return 0

    def _hear(self, number: int, _frame: object) -> None:
        if number == switch_signal.SWITCH:
            self._switch.throw()
        else:
            self._stopped, self._hurried = True, self._stopped
        self._told.put(number)

    def _is_awaited(self, reporter: Reporter) -> bool:
        """Wait until the operator has said that there is this pod; False when asked to stop before."""
        while not self._stopped:
            with suppress(ReporterError):
                reporter.read_spec(PAUSE_SECONDS)
                return True
        return False

    def _until_stopped(self, startup: Startup, progress: Progress) -> None:
        """Serve. The kill switch takes back a plan even now, between two requests; those that wait are served after."""
        while not self._stopped:
            if self._switch.thrown and startup.serves_a_plan:
                self.door.close("the kill switch was thrown: the seed placement is gone back to")
                while not self.queue.pause(PAUSE_SECONDS):
                    if self._stopped:
                        return
                if self._recall(startup) in SERVING:
                    self._open(startup, progress)
                    self.queue.resume()
                    progress.open_door()
                else:
                    self.queue.stop()  # nobody will serve what waits
            with suppress(Empty):  # of two signals at once another thread may get one, and that wakes nobody
                self._told.get(timeout=PAUSE_SECONDS)

    def _recall(self, startup: Startup) -> Phase:
        try:
            self._settings.company.order(RECALL)
            return startup.recall()
        except Stopped:  # between two placements nothing may be served, neither what waits
            give_up(self.door, self.queue, hurry=lambda: self._hurried)
            raise

    def _drain(self, progress: Progress) -> None:
        progress.condition(PlacementCondition.READY, "False", PlacementReason.STOPPING, ASKED)
        self.queue.resume()  # nothing was moved yet where the kill switch had it pause
        grace, hurry = self._serving.grace, lambda: self._hurried
        drain(self.door, self.queue, grace, outgoing=self._outgoing, hurry=hurry)

    def _open(self, startup: Startup, progress: Progress) -> None:
        spec, checkpoint = self._settings.spec, startup.preparation.checkpoint
        self._defaults = serving_defaults(spec, frame_contract(checkpoint), self._settings.environment)
        self._stored = startup.warm_start.stored
        self.metrics.set_shapes({(one.width, one.height, one.frames): one.name for one in spec.workload.shapes})
        drift = DriftWatch(self.metrics, progress.drifted)
        service = Service(startup.prepared, spec, checkpoint, self.metrics, drift)
        self.queue.open(service.run, service.admit, service.recover)

    def _stored_start(self) -> str | None:
        return None if self._stored is None else self._stored.text()

    def _reporter(self) -> Reporter:
        now = datetime.now(UTC)
        if self._identity is None:
            return LocalReporter(new_agent(now, __version__), self._settings.memory_limit or 0)
        agent = new_agent(now, __version__, count_boot(Path(gettempdir()), self._identity.pod_uid))
        client = PlacementClient(in_cluster(), self._identity.namespace, self._identity.pod_name)
        reporter = StatusReporter(client, self._identity.pod_uid, agent)
        reporter.start()
        return reporter
