"""The slots of a ring that every rank has: taken by all ranks or by none, as all buffers are that peers have access to.

A card that is full fails on every rank, and nothing is held after.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from stowplan_agent.accelerators import Accelerator
from stowplan_agent.ranks.circle import Circle
from stowplan_agent.ranks.peers.exchange import PIECE_BYTES, Exchange
from stowplan_agent.ranks.peers.interface import PeerLink


def take_slots(
    name: str,
    sizes: Sequence[int],
    accelerator: Accelerator,
    link: PeerLink,
    circle: Circle,
    *,
    piece_bytes: int = PIECE_BYTES,
) -> tuple[Exchange, list[torch.Tensor]]:
    """Slots of these sizes on every rank, and this rank's buffers of them; `give_back_slots` undoes it. All meet.

    Raises torch.OutOfMemoryError or `RanksError`, with nothing held on any rank.
    """
    slots = take_buffers(f"take the slots of {name}", sizes, link, circle)
    try:
        return Exchange(name, slots, accelerator, link, piece_bytes=piece_bytes), slots
    except BaseException:
        free_buffers(slots, link)
        raise


def give_back_slots(exchange: Exchange, slots: Sequence[torch.Tensor], link: PeerLink) -> None:
    """Part from the peers' slots, and free this rank's. All ranks meet."""
    exchange.close()
    free_buffers(slots, link)


def take_buffers(what: str, sizes: Sequence[int], link: PeerLink, circle: Circle) -> list[torch.Tensor]:
    """Buffers of these sizes on every rank, which nobody else has access to yet. All meet; raises as `take_slots`."""
    taken: list[torch.Tensor] = []

    def take() -> None:
        for nbytes in sizes:
            taken.append(link.allocate(nbytes))

    try:
        circle.all_do(what, take)
    except BaseException:
        free_buffers(taken, link)
        raise
    return taken


def free_buffers(buffers: Sequence[torch.Tensor], link: PeerLink) -> None:
    """Give buffers back that no peer has access to."""
    for buffer in buffers:
        link.free(buffer)
