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

from stowplan_agent.accelerators.cuda import CudaAccelerator
from stowplan_agent.accelerators.staged_copy import StagedCopy
from stowplan_agent.ranks.board import ROW, Board, Turn
from stowplan_agent.ranks.circle import Circle
from stowplan_agent.ranks.errors import NoPeerAccess
from stowplan_agent.ranks.peers import driver
from stowplan_agent.ranks.peers.interface import PeerRegion
from stowplan_agent.ranks.peers.streams import StreamPeerLink


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


class CudaPeerStream:
    """A side stream of one GPU. ``words``: the board's address on the device."""

    def __init__(self, device: torch.device, words: int) -> None:
        """Creates the stream."""
        self._stream = torch.cuda.Stream(device)
        self._words = words

    def wait(self, event: torch.cuda.Event | StagedCopy) -> None:
        """For a staged copy the host waits until its last piece was read: that is of pageable memory only."""
        self._stream.wait_event(event.resolve() if isinstance(event, StagedCopy) else event)

    def wait_word(self, rank: int, word: Turn, turn: int) -> None:
        """By the stream itself."""
        driver.wait_for(self._stream.cuda_stream, self._words + rank * ROW + word, turn)

    def write_word(self, rank: int, word: Turn, turn: int) -> None:
        """By the stream itself."""
        driver.write(self._stream.cuda_stream, self._words + rank * ROW + word, turn)

    def copy(self, destination: torch.Tensor, source: PeerRegion, start: int) -> None:
        """By a copy engine."""
        driver.copy(destination.data_ptr(), source.handle + start, destination.nbytes, self._stream.cuda_stream)

    def record(self, *, timed: bool = False) -> torch.cuda.Event:
        """Timed where somebody may ask how long it took."""
        event = torch.cuda.Event(enable_timing=timed)
        event.record(self._stream)
        return event


class CudaPeerLink(StreamPeerLink):
    """One GPU's end."""

    def __init__(self, accelerator: CudaAccelerator, circle: Circle, board: Board) -> None:
        """Locks the board for the device. Raises `driver.DriverError` where the driver refuses."""
        self._device = device = accelerator.device
        self._memory = accelerator.memory
        self._board = board
        self._taken: dict[int, _DeviceMemory] = {}
        with torch.cuda.device(device):
            torch.cuda.synchronize(device)
            words = driver.expose(board.memory.ctypes.data, board.memory.nbytes)
        super().__init__(circle, lambda: CudaPeerStream(device, words))

    def allocate(self, nbytes: int) -> torch.Tensor:
        """Memory of the driver's own: torch's allocator maps its segments in a way that has no handle.

        Counted as weights, like any buffer. What that allocator keeps unused is given back first where the driver or
        the ceiling has no room, as it does for itself.
        """
        try:
            return self._allocate(nbytes)
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            return self._allocate(nbytes)

    def _allocate(self, nbytes: int) -> torch.Tensor:
        self._memory.check_apart(driver.whole(nbytes))
        with torch.cuda.device(self._device), torch.inference_mode(False):
            memory = _DeviceMemory(nbytes)
            buffer = torch.as_tensor(memory, device=self._device)
        self._memory.hold_apart(nbytes, driver.whole(nbytes))
        self._taken[buffer.data_ptr()] = memory
        return buffer

    def free(self, buffer: torch.Tensor) -> None:
        """Waits for the device. The memory goes now, whoever still has the tensor."""
        memory = self._taken.pop(buffer.data_ptr())
        with torch.cuda.device(self._device):
            torch.cuda.synchronize(self._device)
            driver.give_back(memory.address)
        self._memory.hold_apart(-buffer.nbytes, -driver.whole(buffer.nbytes))

    def _introduce(self, name: str, buffers: Sequence[torch.Tensor]) -> list[list[PeerRegion]]:
        """By handles of memory, over the circle's sockets; then all say whether they could open them."""
        own = [(base64.b64encode(driver.handle_of(buffer.data_ptr())).decode(), buffer.nbytes) for buffer in buffers]
        met = self._circle.meet(name, own)
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

    def close(self) -> None:
        """Waits for the device and unlocks the board."""
        with torch.cuda.device(self._device):
            torch.cuda.synchronize(self._device)
            driver.conceal(self._board.memory.ctypes.data)
