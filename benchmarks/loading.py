"""How close loading comes to its limit: a real-size Wan 14B denoiser from files to the state of a placement, on a GPU.

    python benchmarks/loading.py --folder DIR [--resident 0 20 40] [--breakdown] > results/...json

Writes the checkpoint (26.6 GiB, random weights, bfloat16) to DIR first if it is not there, so that its files are in the
page cache. One JSON document; rates are 1e9 bytes a second, and each claim is a ratio against this run:

- ``limits``: the files read by as many threads as the engine uses, into memory that was touched before (``fileRead``)
  and into memory that has just been mapped (``fileReadToNew``), which is what a new host copy needs; a copy within host
  memory (``hostCopy``); registering with the driver (``register``); the link (``link``).
- ``rows``: for each number of resident layers, the others streamed and pinned, seconds from calling the library to a
  device that stands still; ``engineSeconds`` leaves the library's part out (it maps files and builds modules).
  ``overLimit``: the engine's rate over the slowest of file read, host copy and link, where the file read is that into
  new memory for rows that keep layers on the host; ``overTouchedRead`` takes the one into touched memory instead.
- ``baseline``: ``from_pretrained``, then ``pin_memory`` on every parameter, or ``to("cuda")``; ``speedup`` is theirs
  over ours.
- ``lockedOverPinned``: bytes that are registered with the driver after the commit, over the bytes of the pinned layers.
- ``hostPeakOverHeld``: anonymous memory at its highest while loading, over what the placement holds on the host.
- ``breakdown``, with ``--breakdown``: where the time of one more run for each number of resident layers went, see
  `load_breakdown`.

On a virtual machine whose memory was never used, the hypervisor's first fault on each page (3 to 4 GB/s on the host of
our results; the driver's first registration, 10) hides everything else; ``--touch`` uses and registers the free memory
once before anything is measured.
"""

from __future__ import annotations

import argparse
import gc
import json
import mmap
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers import WanTransformer3DModel

from load_breakdown import Breakdown
from result import heading, say
from stowplan_agent.accelerators.cuda import CudaAccelerator
from stowplan_agent.accelerators.reading_threads import reading_threads
from stowplan_agent.calibration import measure_link
from stowplan_agent.weights import Ledger, WeightsEngine
from stowplan_agent.weights.host import take_arena
from stowplan_agent.weights.ledger import Tier
from stowplan_agent.weights.loading.filling import PIECE
from stowplan_api.placement import ComponentPlacement, GroupPlacement, Placement
from streaming import LAYERS, build

SAMPLE = 4 << 30
"""Bytes that the limits are measured with."""


def write(folder: Path) -> None:
    """The checkpoint, as the library itself saves it."""
    model = build().to("cpu")
    say("writing the checkpoint")
    model.save_pretrained(folder, max_shard_size="5GB")


def limits(folder: Path, accelerator: CudaAccelerator) -> dict[str, float]:
    """Rates of this machine, each the best of two: one part of the path at a time, with the engine's threads."""
    ledger = Ledger()
    files = sorted(folder.glob("*.safetensors"))
    descriptor = os.open(files[0], os.O_RDONLY)
    nbytes = min(SAMPLE, os.fstat(descriptor).st_size) // PIECE * PIECE

    def target() -> np.ndarray[Any, np.dtype[np.uint8]]:
        (buffer,) = take_arena("limits", [nbytes], accelerator, ledger)
        return buffer.tensor.numpy()

    def read(into: np.ndarray[Any, np.dtype[np.uint8]]) -> float:
        return _rate(nbytes, lambda start: os.preadv(descriptor, [memoryview(into[start : start + PIECE])], start))

    touched, other = target(), target()
    read(touched), read(other)
    (locked,) = take_arena("limits", [nbytes], accelerator, ledger)
    locked.tensor.fill_(1)
    began = time.monotonic()
    locked.set_pinned(True)
    register = nbytes / 1e9 / (time.monotonic() - began)
    locked.drop()
    found = {
        "fileRead": max(read(touched) for _ in range(2)),
        "fileReadToNew": max(read(target()) for _ in range(2)),
        "hostCopy": max(
            _rate(nbytes, lambda s: np.copyto(other[s : s + PIECE], touched[s : s + PIECE])) for _ in range(2)
        ),
        "register": register,
        "link": measure_link(accelerator, budget_bytes=2 << 30).pinned_bytes_per_second / 1e9,
    }
    os.close(descriptor)
    return found


def ours(folder: Path, resident: int, found: dict[str, float], breakdown: Breakdown | None = None) -> dict[str, Any]:
    """One load to a placement with this many resident layers."""
    _clean()
    accelerator = CudaAccelerator()
    before, began = anonymous_bytes(), time.monotonic()
    with Highest(anonymous_bytes) as highest, breakdown.watching() if breakdown else nullcontext():
        model = WanTransformer3DModel.from_pretrained(folder, dtype=torch.bfloat16, use_safetensors=True)
        built = time.monotonic()
        engine = WeightsEngine(accelerator)
        engine.adopt({"transformer": model}, lambda _: Placement(components=(entry(resident),)))
        accelerator.synchronize()
        done = time.monotonic()
    engine.commit()
    (part,) = engine.describe()
    nbytes = part.total_bytes()
    pinned = engine.ledger.total(Tier.PINNED)
    held = pinned + engine.ledger.total(Tier.PAGEABLE)
    rate = nbytes / 1e9 / (done - built)
    row = {
        "resident": resident,
        "bytes": nbytes,
        "seconds": done - began,
        "engineSeconds": done - built,
        "rate": rate,
        "overLimit": rate / min(found["fileReadToNew" if held else "fileRead"], found["hostCopy"], found["link"]),
        "overTouchedRead": rate / min(found["fileRead"], found["hostCopy"], found["link"]),
        "pinnedBytes": pinned + accelerator.staging_bytes,
        "pinnedLayerBytes": (LAYERS - resident) * part.groups[0].layer_bytes[0],
        "devicePeakBytes": accelerator.counters().peak,
        "deviceHeldBytes": engine.ledger.total(Tier.DEVICE),
        "hostPeakBytes": highest.value - before,
        "hostHeldBytes": held,
        "digest": digest(model),
    }
    if breakdown is not None:
        row["breakdown"] = breakdown.summary(built, done)
    say(f"{resident} resident: {row['seconds']:.2f} s, {rate:.1f} GB/s in the engine")
    engine.close()
    accelerator.close()
    return row


def baseline(folder: Path, where: str) -> dict[str, Any]:
    """The same file through the library alone, to pinned memory or to the device."""
    _clean()
    began = time.monotonic()
    model = WanTransformer3DModel.from_pretrained(folder, dtype=torch.bfloat16, use_safetensors=True)
    if where == "pinned":
        for parameter in model.parameters():
            parameter.data = parameter.data.pin_memory()
    else:
        model.to("cuda")
    torch.cuda.synchronize()
    seconds = time.monotonic() - began
    say(f"the library alone, {where}: {seconds:.2f} s")
    found = {"seconds": seconds, "digest": digest(model)}
    del model
    _clean()
    torch._C._host_emptyCache()
    return found


def entry(resident: int) -> ComponentPlacement:
    """This many layers on the device for good, the others streamed from pinned memory."""
    if resident == LAYERS:
        return ComponentPlacement(name="transformer", mode="Resident")
    group = GroupPlacement(name="blocks", resident_layers=resident, slots=2, pinned_layers=(LAYERS - resident,))
    return ComponentPlacement(name="transformer", mode="Layerwise", groups=(group,))


def digest(model: torch.nn.Module) -> int:
    """A sum over all bits of all parameters, wherever they are: equal for equal weights."""
    total = 0
    for parameter in model.parameters():
        total += int(parameter.data.contiguous().view(torch.int16).to("cuda").to(torch.int64).sum())
    return total


def anonymous_bytes() -> int:
    return _status("RssAnon")


class Highest:
    """The highest value of a measure, asked every few milliseconds on a thread."""

    def __init__(self, measure: Callable[[], int]) -> None:
        self.value = measure()
        self._measure = measure
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Highest:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.01):
            self.value = max(self.value, self._measure())


def opened(folder: Path, *, touched: bool) -> CudaAccelerator:
    """The card, with the checkpoint in ``folder``, and the machine's free memory used once if so asked."""
    accelerator = CudaAccelerator()
    if touched:
        touch()
    if not list(folder.glob("*.safetensors")):
        write(folder)
    return accelerator


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--resident", type=int, nargs="+", default=[0, 20, 40])
    parser.add_argument("--touch", action="store_true", help="use the machine's free memory once, first")
    parser.add_argument("--breakdown", action="store_true", help="one more run each, and where its time went")
    chosen = parser.parse_args()
    accelerator = opened(chosen.folder, touched=chosen.touch)
    _clean()
    found = limits(chosen.folder, accelerator)
    say(json.dumps(found))
    document = {
        **heading("loading"),
        "device": accelerator.product,
        "torch": torch.__version__,
        "threads": reading_threads(),
        "limits": found,
        "rows": [
            ours(chosen.folder, resident, found, breakdown)
            for resident in chosen.resident
            for breakdown in (None, None, *([Breakdown()] if chosen.breakdown else []))
        ],
        "baseline": {where: baseline(chosen.folder, where) for where in ("pinned", "device")},
    }
    for row in document["rows"]:
        against = document["baseline"]["device" if row["resident"] == LAYERS else "pinned"]
        row["speedup"] = against["seconds"] / row["seconds"]
        row["sameBits"] = row["digest"] == against["digest"]
        row["lockedOverPinned"] = row["pinnedBytes"] / row["pinnedLayerBytes"] if row["pinnedLayerBytes"] else None
        row["hostPeakOverHeld"] = row["hostPeakBytes"] / row["hostHeldBytes"] if row["hostHeldBytes"] else None
    json.dump(document, sys.stdout, indent=1)


def _rate(nbytes: int, one: Callable[[int], object]) -> float:
    began = time.monotonic()
    with ThreadPoolExecutor(reading_threads()) as pool:
        list(pool.map(one, range(0, nbytes, PIECE)))
    return nbytes / 1e9 / (time.monotonic() - began)


def touch() -> None:
    free = next(int(line.split()[1]) << 10 for line in Path("/proc/meminfo").read_text().splitlines()
                if line.startswith("MemFree"))  # fmt: skip
    memory = mmap.mmap(-1, int(free * 0.9), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    pages = np.frombuffer(memory, dtype=np.uint8)

    def one(start: int) -> None:
        pages[start : start + PIECE : 4096] = 1

    _rate(pages.nbytes, one)
    runtime = torch.cuda.cudart()
    if int(runtime.cudaHostRegister(pages.ctypes.data, pages.nbytes, 0)) == 0:
        runtime.cudaHostUnregister(pages.ctypes.data)
    say(f"touched {pages.nbytes >> 30} GiB")


def _clean() -> None:
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) << 10
    return 0


if __name__ == "__main__":
    main()
