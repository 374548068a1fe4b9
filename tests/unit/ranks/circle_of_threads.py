"""Ranks as threads of one process: their circle, their board, and one function that all of them run."""

from __future__ import annotations

import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from typing import TypeVar

from stowplan_agent.ranks.circle import Circle

T = TypeVar("T")


def circles(ranks: int, patience: float = 30.0) -> list[Circle]:
    peers: list[dict[int, socket.socket]] = [{} for _ in range(ranks)]
    for one, other in combinations(range(ranks), 2):
        peers[one][other], peers[other][one] = socket.socketpair()
    return [Circle(rank, peers[rank], patience=patience) for rank in range(ranks)]


def together(ranks: int, work: Callable[[int], T]) -> list[T | Exception]:
    """What each rank's call returns or raises."""

    def run(rank: int) -> T | Exception:
        try:
            return work(rank)
        except Exception as error:
            return error

    with ThreadPoolExecutor(ranks) as pool:
        return list(pool.map(run, range(ranks)))
