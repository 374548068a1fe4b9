"""A memory of what this process did, for saving requests only: bounded, and what falls out of it costs one more."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Remembered(Generic[K, V]):
    """At most ``limit`` entries; those that were put longest ago go first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: OrderedDict[K, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def get(self, key: K) -> V | None:
        """What was put last under a key, if it is still known."""
        return self._entries.get(key)

    def put(self, key: K, value: V) -> None:
        """Remember it, in place of what was there."""
        self._entries.pop(key, None)
        self._entries[key] = value
        while len(self._entries) > self._limit:
            self._entries.popitem(last=False)
