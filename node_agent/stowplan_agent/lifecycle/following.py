"""The process of every rank but the first: starts with it, then does what rank 0 orders until that ends.

It has no door and tells nobody: rank 0 speaks for all. Signals come to all ranks, and while requests are served only
rank 0 heeds them: what it has taken in is finished on all ranks, and its last order ends the others.
"""

from __future__ import annotations

import io
import logging
import signal
from datetime import UTC, datetime
from typing import Final

from stowplan_agent import __version__, switch_signal
from stowplan_agent.cluster.boot import new_agent
from stowplan_agent.cluster.local import LocalReporter
from stowplan_agent.lifecycle.errors import RollbackFailed
from stowplan_agent.lifecycle.orders import END, RECALL, request_of
from stowplan_agent.lifecycle.progress import Progress
from stowplan_agent.lifecycle.session import recover, timeline_of
from stowplan_agent.lifecycle.settings import StartSettings
from stowplan_agent.lifecycle.switch import KillSwitch
from stowplan_agent.lifecycle.together import StartTogether
from stowplan_agent.pipeline import PipelineRequest
from stowplan_agent.pipeline.request import Stopped
from stowplan_agent.ranks.company import Company
from stowplan_agent.ranks.errors import RankLost, RanksError
from stowplan_agent.serving.door import Door
from stowplan_agent.serving.metrics import AgentMetrics
from stowplan_api.contract import ROLLBACK_FAILED_EXIT

_log = logging.getLogger(__name__)
WITHOUT_RANK_0: Final = 1
"""Exit code of a rank that has lost rank 0, whose own end says why."""


class Follower:
    """One process. `run` returns its exit code."""

    def __init__(self, settings: StartSettings, company: Company) -> None:
        """Nothing runs yet."""
        self._settings = settings
        self._company = company
        self._stopped = False
        self._switch = KillSwitch(thrown=settings.disabled)

    def run(self) -> int:
        """0 after rank 0 has ended in good order; 70 where going back failed."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._hear)
        switch_signal.hear(self._hear)
        reporter = LocalReporter(new_agent(datetime.now(UTC), __version__), 0, io.StringIO())
        progress = Progress(reporter, Door(), AgentMetrics())
        start = StartTogether(self._settings, progress, self._company, stop=lambda: self._stopped, switch=self._switch)
        try:
            start.run()
            self._follow(start)
        except RollbackFailed as error:
            _log.error("%s", error)
            return ROLLBACK_FAILED_EXIT
        except Stopped:
            _log.info("asked to stop before anything was placed to serve")
        except RanksError as error:
            _log.error("%s", error)
            return 0 if self._stopped else WITHOUT_RANK_0
        return 0

    def _hear(self, number: int, _frame: object) -> None:
        if number == switch_signal.SWITCH:
            self._switch.throw()
        else:
            self._stopped = True

    def _follow(self, start: StartTogether) -> None:
        while (order := self._company.next()) != END:
            if order == RECALL:
                start.recall()
            else:
                self._serve(start, request_of(order))

    def _serve(self, start: StartTogether, request: PipelineRequest) -> None:
        """What fails here fails on rank 0 as well, which tells the client."""
        session = start.prepared.session
        try:
            session.serve(request, timeline_of(start.prepared.record, request), lambda: False)
        except RankLost:
            raise
        except Exception as error:
            _log.warning("a request ended early: %s", str(error) or type(error).__name__)
            recover(session)
