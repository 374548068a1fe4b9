"""What ranks with cards run: processes, each with a card and a link of its own, and collectives over gloo."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from safetensors import safe_open
from safetensors.torch import save_file

from stowplan_agent.accelerators import Accelerator, Event
from stowplan_agent.accelerators.emulated import EmulatedAccelerator, EmulatedCard
from stowplan_agent.ranks.peers import Exchange, PeerLink
from stowplan_agent.ranks.peers.emulated import EmulatedPeerLink
from stowplan_agent.ranks.seat import Seat
from stowplan_agent.ranks.shares import share
from stowplan_agent.ranks.store import NodeStore, SharedBuffer
from stowplan_agent.weights.ledger import Ledger, Tier

LAYERS: Final = 6
SLOTS: Final = 2
CARD: Final = EmulatedCard(capacity_bytes=32 << 20, latency=0.0, contention=1.0)


def written(folder: Path, side: int) -> Path:
    """The folder, with the layers of a model of ``side`` by ``side`` numbers each in it, the same every time."""
    generator = torch.Generator().manual_seed(3)
    layers = {f"layer.{number}": torch.randn(side, side, generator=generator) for number in range(LAYERS)}
    save_file(layers, folder / "layers.safetensors")
    return folder


class FileLayer:
    """One tensor of a safetensors file as a source of bytes."""

    def __init__(self, path: Path, name: str) -> None:
        with safe_open(path, "pt") as file:
            self.bytes = file.get_tensor(name).view(torch.uint8).flatten()
        self.nbytes = self.bytes.nbytes
        self.read_bytes = 0

    def read(self, start: int, target: torch.Tensor) -> None:
        target.copy_(self.bytes[start : start + target.nbytes])
        self.read_bytes += target.nbytes


class Streamed:
    """A denoiser of square layers on this rank's card: multiplied one by another, pass after pass."""

    def __init__(self, seat: Seat, path: Path, *, card: str = "emulated") -> None:
        self.seat = seat
        self.accelerator, self.link = open_card(seat, card)
        self.ledger = Ledger()
        self.store = NodeStore(seat.circle, self.accelerator, self.ledger)
        self.sources = [FileLayer(path, f"layer.{number}") for number in range(LAYERS)]
        self.nbytes = self.sources[0].nbytes
        self.side = round((self.nbytes // 4) ** 0.5)

    def load(self) -> None:
        """All layers into one copy, locked."""
        self.seat.doing("filling the host store")
        contents = [f"layer {number} of one file" for number in range(LAYERS)]
        self.buffers = self.store.take("denoiser", [self.nbytes] * LAYERS, contents)
        jobs = list(zip(self.sources, self.buffers, strict=True))
        self.store.fill(jobs, lambda number: self.buffers[number].set_pinned(True))
        self.store.settle(self.buffers)

    def run(self, passes: int, sharded: Collection[int] = (), before: Callable[[int], object] = lambda _: None) -> Any:
        """The product and the card's seconds. Layers of ``sharded`` lie on the cards; ``before`` each one's compute."""
        slots = [self.link.allocate(self.nbytes) for _ in range(SLOTS)]
        exchange = Exchange("ring", slots, self.accelerator, self.link, piece_bytes=self.nbytes // 8)
        own = share(self.nbytes, self.seat.ranks, self.seat.rank)
        shards = {number: self.link.allocate(own.nbytes) for number in sorted(sharded)}
        for number, shard in shards.items():
            host = self.buffers[number].tensor[own.part]
            self.accelerator.wait(self.accelerator.copy(shard, host, pinned=True, after=None))
        self.accelerator.synchronize()
        regions = self.link.introduce("shards", list(shards.values()))
        order = sorted(sharded)

        def queue(index: int, after: Event) -> Event:
            number, slot = index % LAYERS, index % SLOTS
            if number in sharded:
                at = order.index(number)
                all_of_them = [one[at] if one else self.link.region(shards[number]) for one in regions]
                return exchange.assemble(slot, self.nbytes, all_of_them, after=after)
            host = self.buffers[number]
            return exchange.stream(slot, host.tensor, pinned=host.pinned, after=after)

        value, start = torch.eye(self.side, device=self.accelerator.device), self.accelerator.record()
        free, here = [start] * SLOTS, []
        for index in range(passes * LAYERS + SLOTS - 1):
            if index < passes * LAYERS:
                here.append(queue(index, free[index % SLOTS]))
            if (at := index - SLOTS + 1) >= 0:
                before(at)
                self.accelerator.wait(here[at])
                value = multiplied(value, slots[at % SLOTS])
                free[at % SLOTS] = self.accelerator.record()
        end = self.accelerator.record()
        self.accelerator.synchronize()
        seconds = self.accelerator.elapsed(start, end)
        self.link.part("shards", regions)
        exchange.close()
        for buffer in (*slots, *shards.values()):
            self.link.free(buffer)
        return value, seconds


def open_card(seat: Seat, card: str) -> tuple[Accelerator, PeerLink]:
    if card == "emulated":
        emulated = EmulatedAccelerator(CARD)
        return emulated, EmulatedPeerLink(emulated, seat.circle, seat.board, latency=0.0)
    from stowplan_agent.accelerators.cuda import CudaAccelerator
    from stowplan_agent.ranks.peers.cuda import CudaPeerLink

    cuda = CudaAccelerator(seat.rank)
    return cuda, CudaPeerLink(cuda, seat.circle, seat.board)


def multiplied(value: torch.Tensor, layer: torch.Tensor) -> torch.Tensor:
    value = value @ layer.view(torch.float32).view(value.shape)
    return value / value.abs().max()


def reference(streamed: Streamed, passes: int) -> torch.Tensor:
    """What one card with all layers gives."""
    device = streamed.accelerator.device
    value = torch.eye(streamed.side, device=device)
    for index in range(passes * LAYERS):
        value = multiplied(value, streamed.sources[index % LAYERS].bytes.to(device))
    return value


def gloo(seat: Seat) -> None:
    store = dist.FileStore(seat.rendezvous, seat.ranks)
    dist.init_process_group("gloo", store=store, rank=seat.rank, world_size=seat.ranks)


def whole_life(seat: Seat, folder: str, card: str = "emulated") -> Any:
    """Load, stream, hold shards, with a collective of the model between: all that is expected of it, as one value."""
    gloo(seat)
    streamed = Streamed(seat, Path(folder) / "layers.safetensors", card=card)
    streamed.load()

    def collective(_: int) -> None:
        one = torch.ones(1)
        dist.all_reduce(one)
        assert one.item() == seat.ranks

    expected = reference(streamed, 3)
    found: dict[str, Any] = {"readBytes": [source.read_bytes for source in streamed.sources]}
    found["shared"] = all(isinstance(buffer, SharedBuffer) for buffer in streamed.buffers)
    found["pinned"] = streamed.ledger.total(Tier.PINNED)
    value, found["seconds"] = streamed.run(3, before=collective)
    found["streamed"] = torch.equal(value, expected)
    value, found["mixedSeconds"] = streamed.run(3, sharded={1, 4}, before=collective)
    found["mixed"] = torch.equal(value, expected)
    value, found["shardedSeconds"] = streamed.run(3, sharded=range(LAYERS))
    found["sharded"] = torch.equal(value, expected)
    found["held"] = streamed.accelerator.counters().weights
    streamed.link.close()
    streamed.accelerator.close()
    dist.destroy_process_group()
    return found


def die_while_streaming(seat: Seat, folder: str, card: str = "emulated") -> None:
    """Rank 1 is killed in the middle of a pass: the others wait for bytes that never come."""
    streamed = Streamed(seat, Path(folder) / "layers.safetensors", card=card)
    streamed.load()
    seat.doing("in a pass")

    def die(index: int) -> None:
        if index == 7 and seat.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    streamed.run(3, before=die)


def stand_still(seat: Seat, folder: str, card: str = "emulated") -> None:
    """Rank 1 stops in the middle of a pass, alive."""
    streamed = Streamed(seat, Path(folder) / "layers.safetensors", card=card)
    streamed.load()
    seat.doing("in a pass")
    streamed.run(3, before=lambda index: signal.pause() if index == 7 and seat.rank == 1 else None)


PROGRAMS: Final[dict[str, Callable[..., Any]]] = {
    program.__name__: program for program in (whole_life, die_while_streaming, stand_still)
}
