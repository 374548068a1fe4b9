"""The peer link of NVIDIA GPUs of one host: copy engines over NVLink or PCIe, and turns that streams keep themselves.

Every rank maps the others' slots and shards into its own context, so no rank has a context on another's card. A turn is
a word of the board, which lies in host memory that all processes map and each driver has locked: streams write and wait
for it (`driver`), so no host waits for another rank's host, no event crosses a process, and nothing is sent to many at
once (multicast can take a host's cards out of service). Words in host memory also mean that a rank that is lost holds
nobody for good: `Board.release` lets every stream go on to its end.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence

import torch

from stowplan_agent.accelerators import Event
from stowplan_agent.accelerators.staged_copy import StagedCopy
from stowplan_agent.ranks.board import ROW, Board, Turn
from stowplan_agent.ranks.circle import Circle
from stowplan_agent.ranks.errors import NoPeerAccess
from stowplan_agent.ranks.peers import driver
from stowplan_agent.ranks.peers.interface import PeerLink, PeerRegion, Turns, check_buffers


class _DeviceMemory:
    """Memory of the driver's, in the form in which torch takes a foreign array."""

    def __init__(self, nbytes: int) -> None:
        self.address = driver.take(nbytes)
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (self.address, False),
            "strides": None,
            "version": 3,
        }


class CudaPeerLink(PeerLink):
    """One GPU's end."""

    def __init__(self, device: torch.device, circle: Circle, board: Board) -> None:
        """Locks the board for the device. Raises `driver.DriverError` where the driver refuses."""
        self.rank, self.ranks, self.turns = circle.rank, circle.ranks, Turns()
        self._device = device
        self._circle = circle
        self._board = board
        self._memory: dict[int, _DeviceMemory] = {}
        with torch.cuda.device(device):
            torch.cuda.synchronize(device)
            self._words = driver.expose(board.memory.ctypes.data, board.memory.nbytes)
        # Apart, so that what waits for a peer holds up neither what is said to it nor the next fetch.
        self._gate, self._voice, self._peer = (torch.cuda.Stream(device) for _ in range(3))

    def allocate(self, nbytes: int) -> torch.Tensor:
        """Memory of the driver's own: torch's allocator maps its segments in a way that has no handle."""
        with torch.cuda.device(self._device), torch.inference_mode(False):
            memory = _DeviceMemory(nbytes)
            buffer = torch.as_tensor(memory, device=self._device)
        self._memory[buffer.data_ptr()] = memory
        return buffer

    def free(self, buffer: torch.Tensor) -> None:
        """Waits for the device. The memory goes now, whoever still has the tensor."""
        memory = self._memory.pop(buffer.data_ptr())
        with torch.cuda.device(self._device):
            torch.cuda.synchronize(self._device)
            driver.give_back(memory.address)

    def introduce(self, name: str, buffers: Sequence[torch.Tensor]) -> list[list[PeerRegion]]:
        """By handles of memory, over the circle's sockets; then all say whether they could open them."""
        own = [(base64.b64encode(driver.handle_of(buffer.data_ptr())).decode(), buffer.nbytes) for buffer in buffers]
        met = self._circle.meet(name, own)
        for rank, contribution in enumerate(met):
            check_buffers(name, rank, contribution, len(own))
        found: list[list[PeerRegion]] = [[] for _ in met]
        refused = None
        try:
            with torch.cuda.device(self._device):
                for rank in (rank for rank in range(self.ranks) if rank != self.rank):
                    for text, nbytes in met[rank].value:
                        address = driver.open_handle(base64.b64decode(text))
                        found[rank].append(PeerRegion(rank, nbytes, address))
        except driver.DriverError as error:
            refused = str(error)
        for rank, contribution in enumerate(self._circle.meet(f"{name}: opened", refused)):
            if contribution.value is not None:
                self.part(name, found)
                raise NoPeerAccess(f"rank {rank} has no access to the memory of its peers: {contribution.value}")
        return found

    def region(self, buffer: torch.Tensor) -> PeerRegion:
        """A buffer of this rank's own, as something to pull from."""
        return PeerRegion(self.rank, buffer.nbytes, buffer.data_ptr())

    def part(self, name: str, regions: Sequence[Sequence[PeerRegion]]) -> None:
        """Waits for the device, so that no pull is on its way."""
        with torch.cuda.device(self._device):
            torch.cuda.synchronize(self._device)
            for region in (region for one in regions for region in one):
                driver.close_handle(region.handle)
        self._circle.meet(f"{name}: over")

    def free_of(self, turn: int, after: Event | None) -> Event:
        """On a stream of its own, which waits for the peers' words."""
        self._gate.wait_event(_on_stream(after) if after is not None else torch.cuda.current_stream().record_event())
        if turn:
            for peer in range(self.ranks):
                if peer != self.rank:
                    driver.wait_for(self._gate.cuda_stream, self._word(peer, Turn.SWAPPED), turn)
        return self._gate.record_event()

    def fetched(self, turn: int, end: Event) -> None:
        """A word, written after the event."""
        self._voice.wait_event(_on_stream(end))
        driver.write(self._voice.cuda_stream, self._word(self.rank, Turn.FETCHED), turn)

    def pull(self, destination: torch.Tensor, source: PeerRegion, start: int, *, turn: int, after: Event) -> None:
        """One copy on the peer stream."""
        self._peer.wait_event(_on_stream(after))
        if turn:
            driver.wait_for(self._peer.cuda_stream, self._word(source.rank, Turn.FETCHED), turn)
        driver.copy(destination.data_ptr(), source.handle + start, destination.nbytes, self._peer.cuda_stream)

    def swapped(self, turn: int, own: Event) -> Event:
        """A word, and a timed event, both at the end of the peer stream."""
        if turn:
            driver.write(self._peer.cuda_stream, self._word(self.rank, Turn.SWAPPED), turn)
        self._peer.wait_event(_on_stream(own))
        event = torch.cuda.Event(enable_timing=True)
        event.record(self._peer)
        return event

    def close(self) -> None:
        """Waits for the device and unlocks the board."""
        with torch.cuda.device(self._device):
            torch.cuda.synchronize(self._device)
            driver.conceal(self._board.memory.ctypes.data)

    def _word(self, rank: int, turn: Turn) -> int:
        return self._words + rank * ROW + turn


def _on_stream(event: torch.cuda.Event | StagedCopy) -> torch.cuda.Event:
    """A staged copy is on its stream only once its last piece was read: the host waits, for pageable memory only."""
    if isinstance(event, StagedCopy):
        resolved: torch.cuda.Event = event.resolve()
        return resolved
    return event
