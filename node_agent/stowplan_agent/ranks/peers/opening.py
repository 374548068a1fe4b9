"""The peer link of whichever card a rank has; and ranks that were broken off at different turns of it, made even."""

from __future__ import annotations

from collections.abc import Sequence

from stowplan_agent.accelerators import Accelerator
from stowplan_agent.accelerators.emulated import EmulatedAccelerator
from stowplan_agent.ranks.board import Turn
from stowplan_agent.ranks.peers.interface import PeerLink
from stowplan_agent.ranks.seat import Seat


def open_peer_link(accelerator: Accelerator, seat: Seat) -> PeerLink:
    """This rank's end. Whether the devices have access to one another is seen when they are first introduced."""
    if isinstance(accelerator, EmulatedAccelerator):
        from stowplan_agent.ranks.peers.emulated import EmulatedPeerLink

        return EmulatedPeerLink(accelerator, seat.circle, seat.board)
    from stowplan_agent.accelerators.cuda import CudaAccelerator
    from stowplan_agent.ranks.peers.cuda import CudaPeerLink

    assert isinstance(accelerator, CudaAccelerator), "there are two kinds of card"
    return CudaPeerLink(accelerator, seat.circle, seat.board)


def catch_up(turns: Sequence[int], link: PeerLink, accelerator: Accelerator, seat: Seat) -> None:
    """All ranks have broken off, each after the turn of ``turns``, by rank: let them go on from the last of these.

    Streams of the ranks that were ahead wait for words of those behind. All that was queued for turns which every rank
    has come to goes its way first; then what is left is let go, with whatever is in the slots: nobody reads it. All
    ranks meet.
    """
    if min(turns) < max(turns):
        if turns[seat.rank] == min(turns):
            accelerator.synchronize()
        seat.circle.meet("those behind are at rest")
        for word in Turn:
            seat.board.counter(seat.rank, word)[0] = max(turns) % (1 << 32)
        link.turns.last = max(turns)
        seat.circle.meet("all are at one turn")
    accelerator.synchronize()
