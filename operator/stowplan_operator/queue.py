"""The work queue: each key at most once in it, never with two workers at once, and failed keys later and later.

The same three rules as client-go's workqueue. A key that arrives while it is worked on is worked on again afterwards,
so no change is lost; a hundred events of one deployment that arrive together cost one reconcile. And one rule more:
what a full list asks for, every deployment at once, comes after what has happened.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from stowplan_operator.observed import Key

FIRST_DELAY: Final = 0.2
LONGEST_DELAY: Final = 60.0
_IN_BETWEEN: Final = 16
"""Keys of events after which one of a full list has its turn, however many more there are."""


class WorkQueue:
    """Keys to reconcile, in the order of their first arrival."""

    def __init__(self) -> None:
        self._waiting: deque[Key] = deque()
        self._listed: dict[Key, None] = {}
        self._since_listed = 0
        self._dirty: set[Key] = set()
        self._working: set[Key] = set()
        self._failures: dict[Key, int] = {}
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._held: set[Key] = set()
        self._arrived = asyncio.Event()

    def __len__(self) -> int:
        return len(self._dirty)

    def add(self, key: Key, *, listed: bool = False) -> None:
        """Ask for a reconcile. A key that the server asked to hold comes when that time is over, and not before.

        ``listed``: nothing is known to have happened to it, so it may wait for those to which something has.
        """
        if key in self._held:
            return
        if key in self._dirty:
            if not listed and key in self._listed:
                del self._listed[key]
                self._waiting.append(key)
            return
        self._dirty.add(key)
        if key in self._working:
            return
        if listed:
            self._listed[key] = None
        else:
            self._waiting.append(key)
        self._arrived.set()

    async def get(self) -> Key:
        """Wait for the next key; `done` must follow."""
        while not self._waiting and not self._listed:
            self._arrived.clear()
            await self._arrived.wait()
        key = self._next()
        self._dirty.discard(key)
        self._working.add(key)
        self._cancel(key)
        return key

    def _next(self) -> Key:
        if self._waiting and (not self._listed or self._since_listed < _IN_BETWEEN):
            self._since_listed += 1
            return self._waiting.popleft()
        self._since_listed = 0
        key = next(iter(self._listed))
        del self._listed[key]
        return key

    def done(self, key: Key) -> None:
        """The key's worker has finished, well or not."""
        self._working.discard(key)
        if key in self._dirty:
            self._waiting.append(key)
            self._arrived.set()

    def succeeded(self, key: Key) -> None:
        """Forget the key's failures."""
        self._failures.pop(key, None)

    def failed(self, key: Key, at_least: float = 0.0) -> float:
        """Ask for a retry after a delay, in seconds, that doubles each time; an event in between comes first.

        ``at_least`` seconds are what the server asked for: it would refuse an earlier attempt, so nothing comes first.
        """
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay = max(at_least, min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** min(failures, 16)))
        self._cancel(key)
        if at_least > 0:
            self._held.add(key)
            self._dirty.discard(key)
        self._timers[key] = asyncio.get_running_loop().call_later(delay, self._over, key)
        return delay

    def later(self, key: Key, seconds: float) -> None:
        """Ask again after so many seconds at the latest. A retry, which asks sooner or must not, stays as it is."""
        if key not in self._dirty and key not in self._timers:
            self._timers[key] = asyncio.get_running_loop().call_later(seconds, self._over, key)

    def _over(self, key: Key) -> None:
        self._timers.pop(key, None)
        self._held.discard(key)
        self.add(key)

    def _cancel(self, key: Key) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
