"""Says in the cluster what the agent does, without ever holding it up.

`report` keeps the newest status and returns; a thread writes it when the API server takes it. Statuses are absolute,
so what was overtaken is never sent, and what is equal to the last write is not written again. Failures back off without
end: a pod that serves must not die of an API server that is away.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from stowplan_agent.cluster.backoff import Backoff
from stowplan_agent.cluster.boot import first_status, former_status
from stowplan_agent.cluster.client import ApiServerError, PlacementClient
from stowplan_agent.cluster.reporter import ReporterError
from stowplan_api.residency_placement import Agent, ResidencyPlacementSpec, ResidencyPlacementStatus

RESYNC: Final = 120.0
"""Seconds between looks at whether the status is still there: someone may delete and recreate the object."""
_log = logging.getLogger(__name__)


class StatusReporter:
    """Writes the status of one pod's ResidencyPlacement. `start` it first, before any weight is touched."""

    def __init__(
        self,
        client: PlacementClient,
        pod_uid: str,
        agent: Agent,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        jitter: Callable[[], float] = random.random,
        backoff: Backoff | None = None,
        resync: float = RESYNC,
    ) -> None:
        self._client, self._pod_uid, self._agent = client, pod_uid, agent
        self._now, self._jitter = now, jitter
        self._backoff = backoff or Backoff()
        self._resync = resync
        self._changed = threading.Condition()
        self._wanted: ResidencyPlacementStatus | None = None
        self._written: ResidencyPlacementStatus | None = None
        self._spec: ResidencyPlacementSpec | None = None
        self._problem: str | None = None
        self._hurry = False
        self._stopping = False
        self._uid: str | None = None  # the thread's own: which object was seen
        self._thread = threading.Thread(target=self._work, name="stowplan-status", daemon=True)

    def start(self) -> None:
        """Look for the object and say that this boot is new and not validated; returns at once."""
        self._thread.start()

    def read_spec(self, timeout: float | None = None) -> ResidencyPlacementSpec:
        """The spec that the operator wrote. Raises ReporterError when it is not there after ``timeout`` seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._spec is not None or self._stopping, timeout):
                raise ReporterError(f"no spec after {timeout:g} s: {self._problem or 'no answer yet'}")
            if self._spec is None:
                raise ReporterError("the reporter was stopped before the spec came")
            return self._spec

    @property
    def status(self) -> ResidencyPlacementStatus:
        """The newest status: what was reported last, else the first one of this boot. Raises ReporterError before."""
        with self._changed:
            if self._wanted is None:
                raise ReporterError("there is no status yet; read_spec waits for the first one")
            return self._wanted

    @property
    def problem(self) -> str | None:
        """Why the newest status is not written, in one sentence; None when nothing is wrong."""
        with self._changed:
            return self._problem

    def report(self, status: ResidencyPlacementStatus) -> None:
        """Make this the status; whatever of this boot was not written yet is overtaken. Never blocks."""
        if status.agent is None:
            status = status.model_copy(update={"agent": self._agent})
        with self._changed:
            self._wanted = status
            self._changed.notify_all()

    def flush(self, timeout: float) -> bool:
        """Try at once, and wait at most ``timeout`` seconds until the newest status is written; whether it is."""
        with self._changed:
            self._hurry = True
            self._changed.notify_all()
            return self._changed.wait_for(self._is_written, timeout)

    def close(self, timeout: float = 5.0) -> None:
        """Write what is left if that takes at most ``timeout`` seconds, and stop the thread."""
        if self._thread.is_alive():
            self.flush(timeout)
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(timeout)
        self._client.close()

    def _is_written(self) -> bool:
        return self._wanted is not None and self._wanted == self._written

    def _work(self) -> None:
        failures = 0
        while self._wait_for_work(failures):
            try:
                self._step()
            except ApiServerError as error:
                failures += 1
                self._say(str(error))
                missing = error.status == 404
                self._pause(self._backoff.delay(failures, self._jitter(), missing=missing, asked=error.retry_after))
            except Exception as error:
                failures += 1
                self._say(f"writing the status failed with {type(error).__name__}: {error}", error)
                self._pause(self._backoff.delay(failures, self._jitter()))
            else:
                failures = 0
                self._say(None)

    def _wait_for_work(self, failures: int) -> bool:
        """Until there is something to write or to look at; False when the reporter stops."""
        with self._changed:
            if failures == 0 and self._uid is not None:
                self._changed.wait_for(lambda: self._stopping or not self._is_written(), self._resync)
            self._hurry = False
            return not self._stopping

    def _step(self) -> None:
        """One look or one write. Which one is decided by what is known, so any failure just comes back here."""
        if self._uid is None or self._is_written():
            self._look()
        with self._changed:
            wanted, uid = self._wanted, self._uid
        if wanted is None or uid is None or wanted == self._written:
            return
        try:
            self._client.apply_status(uid, wanted.to_json(exclude_none=True))
        except ApiServerError as error:
            # Gone, or there is another object of this name: look again before the next write.
            if error.status in (404, 409, 422):
                self._forget()
            raise
        with self._changed:
            self._written = wanted
            self._changed.notify_all()

    def _look(self) -> None:
        """Find the object of this pod, and whether it still has a status of this boot."""
        try:
            found = self._client.get()
        except ApiServerError as error:
            if error.status == 404:
                self._forget()
            raise
        spec = ResidencyPlacementSpec.model_validate(found["spec"])
        if spec.pod.uid != self._pod_uid:
            self._forget()
            raise ApiServerError(
                f"ResidencyPlacement {self._client.name} belongs to the pod with uid {spec.pod.uid}, and this one has "
                f"{self._pod_uid}; the operator replaces it",
                404,
            )
        self._learn(found["metadata"]["uid"], spec, found.get("status") or {})

    def _learn(self, uid: str, spec: ResidencyPlacementSpec, status: dict[str, Any]) -> None:
        boot = (status.get("agent") or {}).get("bootId")
        with self._changed:
            if uid != self._uid or boot != self._agent.boot_id:
                self._written = None
            self._uid, self._spec = uid, spec
            if self._wanted is None:
                self._wanted = first_status(self._agent, spec.generation, former_status(status), self._now())
            self._changed.notify_all()

    def _forget(self) -> None:
        with self._changed:
            self._uid = self._written = None

    def _pause(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or self._hurry, seconds)

    def _say(self, problem: str | None, error: Exception | None = None) -> None:
        """Log a problem when it is new, not each time it is met again."""
        with self._changed:
            before, self._problem = self._problem, problem
        if problem is not None and problem != before:
            _log.warning("the status waits: %s", problem, exc_info=error)
        elif problem is None and before is not None:
            _log.info("the status is written again")
