"""Whether the measured rate of pageable copies is that of layers in a pass: both in one run, on a GPU.

    python benchmarks/link.py > results/...json [--layers 16] [--layer-mib 670]

- ``layers``: bytes a second of layers of real size, each from host memory of its own, into two buffers in turn, pass
  after pass without a pause: what a pass that waits for its copies gets. The first pass is left out.
- ``ratio``: the rate of `calibration.measure_link` over that, for pageable and for pinned memory.
- ``variants``: what a row of copies gives when its memory is smaller, or was touched by one thread; and a copy alone.
  They tell which part of a measurement is to blame where the ratio is not 1.

Takes a few seconds, 12 GiB of host and 2 GiB of device memory. ``--tiny`` runs the same program on the emulated card.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from result import heading
from stowplan_agent.accelerators import Accelerator, open_accelerator
from stowplan_agent.accelerators.reading_threads import reading_threads
from stowplan_agent.accelerators.staging_memory import PIECE_BYTES, fault_in
from stowplan_agent.calibration import measure_link
from stowplan_agent.calibration.steady_rate import copy_seconds, seconds_in_a_row
from stowplan_agent.weights.host import HostBuffer, take_arena
from stowplan_agent.weights.ledger import Ledger

PASSES = 3
SLOTS = 2
REPEATS = 3


@contextmanager
def host_memory(
    accelerator: Accelerator, sizes: list[int], touch: Callable[[torch.Tensor], object]
) -> Iterator[list[HostBuffer]]:
    """One arena, each buffer touched once."""
    buffers = take_arena("benchmark", sizes, accelerator, Ledger())
    try:
        for buffer in buffers:
            touch(buffer.tensor)
        yield buffers
    finally:
        for buffer in buffers:
            buffer.drop()


def by_many(memory: torch.Tensor) -> None:
    """As the loader fills it: each piece by a thread of its own."""
    fault_in(memory.split(PIECE_BYTES))


def by_one(memory: torch.Tensor) -> None:
    memory.numpy()[:] = 0


def layers_rate(accelerator: Accelerator, layers: int, nbytes: int, *, pinned: bool) -> float:
    """Bytes a second of passes over the layers, after the first."""
    slots = [accelerator.allocate(nbytes) for _ in range(SLOTS)]
    try:
        with host_memory(accelerator, [nbytes] * layers, by_many) as buffers:
            for buffer in buffers:
                buffer.set_pinned(pinned)
            start = end = accelerator.record()
            for index in range(layers * (1 + PASSES)):
                source = buffers[index % layers]
                end = accelerator.copy(slots[index % SLOTS], source.tensor, pinned=source.pinned, after=None)
                if index == layers - 1:
                    start = end
            accelerator.wait(end)
            accelerator.synchronize()
            return layers * PASSES * nbytes / accelerator.elapsed(start, end)
    finally:
        for slot in slots:
            accelerator.free(slot)


def variants(accelerator: Accelerator, largest: int) -> dict[str, float]:
    """Bytes a second of rows of copies, and of single ones."""
    found: dict[str, float] = {}
    for nbytes in (largest // 8, largest // 2, largest):
        device = accelerator.allocate(nbytes)
        for name, touch in (("many", by_many), ("one", by_one)):
            with host_memory(accelerator, [nbytes], touch) as (host,):
                key = f"{nbytes / (1 << 20):g} MiB touched by {name}"
                found[f"row, {key}"] = nbytes / seconds_in_a_row(accelerator, device, host)
                alone = min(copy_seconds(accelerator, device, host, nbytes) for _ in range(REPEATS))
                found[f"alone, {key}"] = nbytes / alone
        accelerator.free(device)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--layer-mib", type=int, default=670)
    parser.add_argument("--tiny", action="store_true", help="a rehearsal on the emulated card, of MiB as KiB")
    chosen = parser.parse_args()
    unit = 1 << 10 if chosen.tiny else 1 << 20
    accelerator = open_accelerator(
        "emulated" if chosen.tiny else "cuda", ceiling_bytes=64 << 20 if chosen.tiny else None
    )
    began = time.monotonic()
    link = measure_link(accelerator, budget_bytes=2048 * unit)
    seconds = time.monotonic() - began
    nbytes = chosen.layer_mib * unit
    pageable = layers_rate(accelerator, chosen.layers, nbytes, pinned=False)
    pinned = layers_rate(accelerator, chosen.layers, nbytes, pinned=True)
    document = {
        **heading("link"),
        "device": accelerator.product,
        "torch": torch.__version__,
        "readingThreads": reading_threads(),
        "link": link.to_json(),
        "linkSeconds": seconds,
        "layers": {"pageableBytesPerSecond": pageable, "pinnedBytesPerSecond": pinned},
        "ratio": {
            "pageable": link.pageable_bytes_per_second / pageable,
            "pinned": link.pinned_bytes_per_second / pinned,
        },
        "variants": variants(accelerator, 512 * unit),
    }
    print(json.dumps(document, indent=1))
    accelerator.close()


if __name__ == "__main__":
    main()
