"""One rank among its company, as the lifecycle sees it: what all ranks do in step, and how one that cannot is heard.

A request ends on all ranks in one way: the first
failure of any is the failure of all. Whatever ranks do apart from one another (one out of memory, others in a
collective) ends in `regroup`, from where they go on in step.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, NoReturn, TypeVar

import torch
from torch.distributed.device_mesh import DeviceMesh

from stowplan_agent.accelerators import Accelerator
from stowplan_agent.accelerators.shortage import is_shortage
from stowplan_agent.ranks.alone import Alone
from stowplan_agent.ranks.circle import LONGEST
from stowplan_agent.ranks.collectives import Collectives
from stowplan_agent.ranks.errors import RanksError, first_line
from stowplan_agent.ranks.neighbourhood import Neighbourhood
from stowplan_agent.ranks.peers import PeerLink, measure_peer_rate
from stowplan_agent.ranks.peers.opening import catch_up, open_peer_link
from stowplan_agent.ranks.seat import Seat
from stowplan_agent.weights.neighbours import NeighboursOf

T = TypeVar("T")
PIECE: Final = LONGEST // 8
"""Characters of a long value that one meeting takes: JSON makes six bytes of one at most."""
PEER_SHARE: Final = 8
"""The way to the peers is measured with at most this part of the device's free memory."""
IDLE: Final = 1e9
"""Seconds: for ever."""


class Company(Alone):
    """One rank among several. Use it from one thread at a time."""

    def __init__(self, seat: Seat, *, patience: float = 120.0) -> None:
        """``patience``: seconds that a rank waits for the others in a collective of the model."""
        self.rank, self.ranks = seat.rank, seat.ranks
        self.seat = seat
        self._circle = seat.circle
        self._patience = patience
        self._requests = self._regroupings = 0
        self._stopped = False
        self._link: PeerLink | None = None
        self._accelerator: Accelerator | None = None
        self._collectives: Collectives | None = None
        self._reopen: Callable[[Collectives], None] = lambda _: None

    def neighbours(self, accelerator: Accelerator) -> NeighboursOf | None:
        """Opens the way to the peers and measures it. All ranks meet."""
        self._accelerator = accelerator
        link = open_peer_link(accelerator, self.seat)
        free = accelerator.capacity_bytes() - accelerator.outside_bytes() - accelerator.counters().allocated
        budget = self.least("memory for the peer rate", max(2, free // PEER_SHARE))
        self.peer_rate = measure_peer_rate(accelerator, link, self._circle, budget_bytes=budget)
        if self.least("peer access", int(self.peer_rate > 0)):
            self._link = link
        else:
            self.peer_rate = 0.0
            link.close()
        return partial(Neighbourhood, circle=self._circle, accelerator=accelerator, link=self._link)

    def share(self, device: torch.device, ring: int, ulysses: int, enable: Callable[[DeviceMesh], None]) -> None:
        """Open the model's collectives; ``enable`` is given the mesh, now and each time that they are opened anew."""
        self._reopen = lambda collectives: enable(collectives.open(ring, ulysses))
        self._collectives = Collectives(self.seat, device.type, patience=self._patience)
        self._reopen(self._collectives)

    def request(self, work: Callable[[], T]) -> T:
        """Raises torch.OutOfMemoryError with the numbers of whichever rank was short first, on all of them."""
        self._requests += 1
        self._stopped = False
        try:
            self._circle.meet(f"request {self._requests}")  # a rank that goes back instead is noticed before it runs
            done = work()
        except Exception as error:
            if not self._stopped:
                return self._fail(error)
            self._circle.meet(f"the end of request {self._requests}")  # all ranks broke off after one and the same step
            raise
        try:
            self._circle.meet(f"the end of request {self._requests}")
        except RanksError as error:
            return self._fail(error)
        return done

    def _fail(self, failure: Exception) -> NoReturn:
        """Tell the others, hear of them, and raise what was the first failure of any."""
        told = {"moment": time.monotonic(), "error": first_line(failure), "short": is_shortage(failure)}
        met = self._regroup(f"request {self._requests}", told, level=0)
        self.reopen()
        rank = min(range(self.ranks), key=lambda one: (not met[one]["short"], met[one]["moment"]))
        if rank == self.rank:
            raise failure
        if met[rank]["short"]:
            raise torch.OutOfMemoryError(met[rank]["error"]) from None
        raise RanksError(f"rank {rank} could not run the request: {met[rank]['error']}") from None

    def regroup(self, value: Any) -> list[Any]:
        """Every rank's JSON value, from wherever the ranks are, in a request or not; afterwards they are in step.

        Raises `RankLost` where one does not come.
        """
        self._regroupings += 1
        return self._regroup(f"number {self._regroupings}", value, level=1)

    def _regroup(self, name: str, value: Any, *, level: int) -> list[Any]:
        if self._collectives is not None:
            self._collectives.give_up()
        turn = 0 if self._link is None else self._link.turns.last
        patience = 2 * self._patience + 1  # whoever is in a collective leaves it within half of that
        met = self._circle.regroup(name, [turn, self._requests, value], level=level, patience=patience)
        self._requests = max(requests for _, requests, _ in met)
        if self._link is not None and self._accelerator is not None:
            catch_up([turn for turn, _, _ in met], self._link, self._accelerator, self.seat)
        return [value for _, _, value in met]

    def reopen(self) -> None:
        """Open the collectives anew, after `regroup`. All ranks come."""
        if self._collectives is not None:
            self._reopen(self._collectives)

    def stops(self, own: Callable[[], bool]) -> Callable[[], bool]:
        """Asked by every rank after the same steps."""

        def any_rank() -> bool:
            self._stopped = self.most("a step was made", int(own())) > 0
            return self._stopped

        return any_rank

    def most(self, name: str, value: int) -> int:
        """All ranks meet."""
        return int(max(one.value for one in self._circle.meet(name, value)))

    def least(self, name: str, value: int) -> int:
        """All ranks meet."""
        return int(min(one.value for one in self._circle.meet(name, value)))

    def gather(self, name: str, value: Any) -> list[Any]:
        """Of any length. All ranks meet."""
        text = json.dumps(value, separators=(",", ":"))
        count = self.most(f"{name}: how long", -(-len(text) // PIECE))
        found = [""] * self.ranks
        for start in range(0, count * PIECE, PIECE):
            met = self._circle.meet(f"{name}: from {start}", text[start : start + PIECE])
            found = [before + one.value for before, one in zip(found, met, strict=True)]
        return [json.loads(one) for one in found]

    def in_turn(self, name: str, work: Callable[[], T]) -> T:
        """However long it takes: files may come from afar."""
        done: list[T] = []
        for turn in (True, False):
            mine = (self.rank == 0) is turn
            self._circle.all_do(name, lambda: done.append(work()) if mine else None, patience=IDLE)  # noqa: B023
        return done[0]

    def order(self, value: Any) -> None:
        """The others wait for it (`next`), or are elsewhere or gone, which is known soon enough."""
        with suppress(RanksError):
            self._circle.meet("what comes next", value)

    def next(self) -> Any:
        """Any other rank: what rank 0 orders next, however long that takes. Raises `RanksError` once rank 0 is gone."""
        return self._circle.meet("what comes next", patience=IDLE)[0].value
