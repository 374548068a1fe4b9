"""Carries decisions out: the only place that writes to the cluster.

Every write is absolute and guarded by the uid it was decided for, so a repeated one changes nothing and a late one
cannot hit an object that has taken the name since. Answers go back into what was observed: the next decision must see
them even when the watch is slow.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from datetime import datetime
from typing import Any, Final

from stowplan_api.conditions import shorten
from stowplan_api.contract import Manager
from stowplan_operator.allowance import Allowances
from stowplan_operator.client import ApiError, Client
from stowplan_operator.decide import ChildWrite, Decision, GateWrite
from stowplan_operator.differences import would_change
from stowplan_operator.kinds import CONFIG_MAP, DIFFUSION_DEPLOYMENT, POD, RESIDENCY_PLACEMENT, Json, kind_of
from stowplan_operator.observed import Observed
from stowplan_operator.outcome import Outcome
from stowplan_operator.ownership import check_owner
from stowplan_operator.remembered import Remembered
from stowplan_operator.render.naming import digest
from stowplan_operator.starts import StartKeeper

_logger = logging.getLogger(__name__)
AT_ONCE: Final = 8
"""Writes of one deployment that are under way at the same time."""
_REMEMBERED: Final = 10_000
"""Events that need not be posted, and children that need not be applied, again by this process."""


class Writer:
    """Writes what was decided. One refused child stops neither the gates nor the status."""

    def __init__(
        self,
        client: Client,
        observed: Observed,
        now: Callable[[], datetime],
        gate_opened: Callable[[float], None] = lambda seconds: None,
        starts: StartKeeper | None = None,
        rolled_back: Callable[[str], None] = lambda reason: None,
    ) -> None:
        self._client = client
        self._observed = observed
        self._now = now
        self._gate_opened = gate_opened
        self._starts, self._rolled_back = starts, rolled_back
        self._settled: Remembered[tuple[str, str, str], tuple[str, str]] = Remembered(_REMEMBERED)
        self._posted: Remembered[str, None] = Remembered(_REMEMBERED)
        self._allowances = Allowances()

    async def carry_out(self, decision: Decision) -> Outcome:
        """Write a decision, in its order. Failures are in the outcome; nothing is raised for them."""
        outcome = Outcome()
        # Pods that change at once are not written one by one. What closes comes first, and Events come after.
        landed: list[GateWrite] = []
        for opens in (False, True):
            gates = [gate for gate in decision.gates if gate.patch.gate.open is opens]
            await self._side_by_side(self._attempt(outcome, self._gate(outcome, gate, landed)) for gate in gates)
        stories = [event for gate in landed for event in gate.events]
        await self._side_by_side(self._attempt(outcome, self._event(outcome, story)) for story in stories)
        void = decision.voided_starts
        # No pod of a new template may find what it is not to use.
        if void is None or await self._attempt(outcome, self._void(outcome, void), void):
            for child in decision.children:
                await self._attempt(outcome, self._child(outcome, child), child.manifest)
        await self._side_by_side(self._attempt(outcome, self._placement(outcome, one)) for one in decision.placements)
        told = [await self._attempt(outcome, self._event(outcome, event)) for event in decision.events]
        # Written after a lost Event, the status would hide the transition that the Event tells of.
        if decision.status is not None and all(told):
            await self._attempt(outcome, self._status(outcome, decision, decision.status))
        if decision.fetch is not None and self._starts is not None:
            self._starts.consider(decision.fetch)
        return outcome

    async def _side_by_side(self, writes: Iterable[Coroutine[Any, Any, bool]]) -> None:
        """So many at once and no more: the connections are for every deployment."""
        pending = list(writes)
        for start in range(0, len(pending), AT_ONCE):
            await asyncio.gather(*pending[start : start + AT_ONCE])

    async def _attempt(self, outcome: Outcome, writing: Awaitable[None], child: Json | None = None) -> bool:
        """Whether it need not be repeated; if it must, the outcome says so."""
        try:
            await writing
        except ApiError as error:
            if error.gone:
                # Its deletion is on the way as an event: that, not a retry, is what comes next.
                return True
            outcome.retry = True
            outcome.retry_after = max(outcome.retry_after, error.retry_after)
            if child is not None and not error.transient and error.status != 409:
                outcome.refusals.append(
                    shorten(f"{child['kind']} {child['metadata']['name']} was refused: {error.message}")
                )
            elif error.status != 409:
                _logger.warning("A write failed and will be repeated: %s", error.message)
            return False
        return True

    async def _gate(self, outcome: Outcome, write: GateWrite, landed: list[GateWrite]) -> None:
        pod = write.patch.pod
        allowance = self._allowances.of_gate(write)
        if allowance is not None and outcome.waits(allowance, pod.uid, self._now()):
            return
        try:
            patched = await self._client.patch_status(POD, pod.namespace, pod.name, write.patch.body, Manager.GATE)
        except ApiError as error:
            if error.status == 409:
                # The pod is not what was judged. Judge anew what is there, also when the watch does not deliver it.
                there = await self._client.get(POD, pod.namespace, pod.name)
                if there is not None:
                    self._observed.put(POD, there)
            raise
        self._observed.put(POD, patched)
        outcome.writes += 1
        if allowance is not None:
            allowance.take(pod.uid, self._now())
        if write.validated_at is not None:
            self._gate_opened((self._now() - write.validated_at).total_seconds())
        landed.append(write)

    async def _child(self, outcome: Outcome, write: ChildWrite) -> None:
        manifest, existing = write.manifest, write.existing
        kind, metadata = kind_of(manifest), manifest["metadata"]
        place = (kind.kind, metadata["namespace"], metadata["name"])
        if existing is None:
            # Not seen is not the same as not there: a forced apply would take over what somebody else made.
            existing = await self._client.get(kind, metadata["namespace"], metadata["name"])
        if existing is not None:
            if self._settled.get(place) == (digest(manifest), _substance(existing)):
                return
            check_owner(manifest, existing)
            manifest = {**manifest, "metadata": {**metadata, "uid": existing["metadata"]["uid"]}}
        applied = await self._client.apply(manifest, Manager.WORKLOAD)
        self._observed.put(kind, applied)
        outcome.writes += 1
        if would_change(write.manifest, applied, Manager.WORKLOAD):
            # The server keeps some value in another spelling (a user's cpu: 0.5 is 500m there); once is enough.
            self._settled.put(place, (digest(write.manifest), _substance(applied)))
        for event in write.events:
            await self._event(outcome, event)

    async def _void(self, outcome: Outcome, manifest: Json) -> None:
        self._observed.put(CONFIG_MAP, await self._client.apply(manifest, Manager.WORKLOAD))
        outcome.writes += 1

    async def _placement(self, outcome: Outcome, manifest: Json) -> None:
        try:
            created = await self._client.create(manifest, Manager.WORKLOAD)
        except ApiError as error:
            if error.status != 409:
                raise
            # It is there already (another operator, a slow watch), or that of an earlier pod is still going away.
            metadata = manifest["metadata"]
            there = await self._client.get(RESIDENCY_PLACEMENT, metadata["namespace"], metadata["name"])
            if there is not None:
                self._observed.put(RESIDENCY_PLACEMENT, there)
            outcome.retry = there is None or there["spec"]["pod"]["uid"] != manifest["spec"]["pod"]["uid"]
            return
        self._observed.put(RESIDENCY_PLACEMENT, created)
        outcome.writes += 1

    async def _event(self, outcome: Outcome, manifest: Json) -> None:
        name = manifest["metadata"]["name"]
        pod = (manifest.get("related") or {}).get("uid", name)
        if name in self._posted or self._allowances.events.wait(pod, self._now()) > 0:
            return
        try:
            await self._client.create(manifest, Manager.WORKLOAD)
            outcome.writes += 1
        except ApiError as error:
            if error.status != 409:
                raise
        self._posted.put(name, None)
        self._allowances.events.take(pod, self._now())

    async def _status(self, outcome: Outcome, decision: Decision, manifest: Json) -> None:
        uid = manifest["metadata"]["uid"]
        if not decision.takes_back and outcome.waits(self._allowances.statuses, uid, self._now()):
            return
        applied = await self._client.apply(manifest, Manager.STATUS, "status")
        self._allowances.statuses.take(uid, self._now())
        self._observed.put(DIFFUSION_DEPLOYMENT, applied)
        outcome.writes += 1
        for reason in decision.rollbacks:
            self._rolled_back(reason)


def _substance(existing: Json) -> str:
    """A hash of what a write of ours could change: not the status, not the bookkeeping."""
    rest = {key: value for key, value in existing.items() if key not in ("apiVersion", "kind", "metadata", "status")}
    metadata = existing["metadata"]
    return digest([metadata["uid"], metadata.get("labels"), metadata.get("ownerReferences"), rest])
