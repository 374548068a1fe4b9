"""How long a pod takes to its Ready, by phase: cold, and warm from the record of the start before, on a GPU.

    python benchmarks/startup.py --folder DIR --output results/...json [--device-memory 32Gi] [--shape 832x480x81@40]

Each start is a process of its own that does what the agent does before it serves: inventory, load, and every request
that measures and proves. The first finds no stored start in ``STOWPLAN_RECORD_DIR``; the second finds what the first
left. The checkpoint is a complete Wan folder of real size (26.6 GiB of denoiser, 10.6 of encoder; random weights). It
is written to DIR first if it is not there, so that its files are in the page cache for both starts alike. Memory of the
host is used once before (``--no-touch`` leaves that out): a virtual machine's first use of each page is slow, and only
the cold start would pay for it.

- ``starts``: phases with their seconds in order, ``startSeconds`` from the first phase to Ready, ``processSeconds``
  from the start of the process (imports included), the placement, and what the proof says.
- ``speedup``: the cold start's ``processSeconds`` over the warm one's; ``speedupOfStart``: of ``startSeconds``.
- ``claims``: whether the warm start reused the stored one, both ended Ready in one placement, and warm was at least 3
  times sooner, from the start of the process.

The document is written anew after each start. ``--tiny`` rehearses it: a tiny pipeline on the emulated card.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from result import heading, say, write

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
LEAST_SPEEDUP = 3
TOUCHED = 44 << 30
"""Bytes of host memory that are used once before: what the pipeline takes, and a little."""


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="the checkpoint; written if it is not there")
    parser.add_argument("--output", type=Path, help="where the document is written")
    parser.add_argument("--device-memory", help="such as 32Gi; the whole card by default")
    parser.add_argument("--shape", help="WIDTHxHEIGHTxFRAMES@STEPS")
    parser.add_argument("--records", type=Path, help="where starts are stored; a new directory by default")
    parser.add_argument("--no-touch", action="store_true", help="leave the host's memory as it is")
    parser.add_argument("--tiny", action="store_true", help="a rehearsal on the emulated card")
    parser.add_argument("--began", type=float, help=argparse.SUPPRESS)  # one start, in the process that makes it
    chosen = parser.parse_args(arguments)
    if chosen.began is None and chosen.output is None:
        parser.error("--output is needed")
    chosen.shape = chosen.shape or ("32x32x5@6" if chosen.tiny else "832x480x81@40")
    if chosen.tiny:
        chosen.device_memory = chosen.device_memory or "40Mi"
    return chosen


# --------------------------------------------------------------------------------------------- one start, in a process


def spec_of(chosen: argparse.Namespace) -> dict[str, Any]:
    """What the operator would have written."""
    size, steps = chosen.shape.split("@")
    width, height, frames = map(int, size.split("x"))
    resources: dict[str, Any] = {"gpus": 1, "memory": "8Gi" if chosen.tiny else "1Ti"}
    if chosen.device_memory:
        resources["deviceMemory"] = chosen.device_memory
    shape = {"name": "video", "width": width, "height": height, "frames": frames, "steps": int(steps)}
    return {
        "model": {"source": chosen.folder.absolute().as_uri(), "dtype": "float32" if chosen.tiny else "bfloat16"},
        "workload": {"shapes": [shape]},
        "resources": resources,
        "residency": {"deviceReserve": "1Mi"} if chosen.tiny else {},
    }


def one_start(chosen: argparse.Namespace) -> dict[str, Any]:
    """Start as the agent does, to its end; what happened."""
    from stowplan_agent import __version__
    from stowplan_agent.cluster.boot import new_agent
    from stowplan_agent.cluster.local import LocalReporter
    from stowplan_agent.lifecycle import Progress, StartSettings, Startup
    from stowplan_agent.lifecycle.threads import limit_threads
    from stowplan_agent.serving.door import Door
    from stowplan_agent.serving.metrics import AgentMetrics
    from stowplan_api.diffusion_deployment import DiffusionDeploymentSpec

    limit_threads()
    spec = DiffusionDeploymentSpec.model_validate(spec_of(chosen))
    environment = {
        "STOWPLAN_ACCELERATOR": "emulated" if chosen.tiny else "cuda",
        "STOWPLAN_RECORD_DIR": str(chosen.records),
    }
    settings = StartSettings.read(spec, environment, memory_limit=8 << 30 if chosen.tiny else None)
    progress = Progress(LocalReporter(new_agent(datetime.now(UTC), __version__), 0), Door(), AgentMetrics())
    imported, began = time.time(), time.monotonic()
    startup = Startup(settings, progress)
    try:
        phase = startup.run()
        seconds, ready = time.monotonic() - began, time.time()
        prepared = startup.prepared if phase != "Failed" else None
        return {
            "phase": phase,
            "error": str(startup.error) if startup.error else None,
            "importSeconds": imported - chosen.began,
            "startSeconds": seconds,
            "processSeconds": ready - chosen.began,
            "phases": [[one.name, (one.milliseconds or 0) / 1000] for one in progress.status.phases],
            "conditions": {one.type: f"{one.reason}: {one.message}" for one in progress.status.conditions},
            "device": startup.preparation.survey.accelerator.product,
            "placement": prepared.session.placement().to_json() if prepared else None,
        }
    finally:
        startup.close()


# ----------------------------------------------------------------------------------------------------- both, in turn


def main(arguments: Sequence[str] | None = None) -> None:
    chosen = parsed(arguments)
    if chosen.began is not None:
        print("\n" + json.dumps(one_start(chosen)), flush=True)
        return
    if not (chosen.folder / "model_index.json").is_file():
        write_checkpoint(chosen)
        say("checkpoint written")
    if not chosen.tiny and not chosen.no_touch:
        touch(TOUCHED)
        say("host memory touched")
    with tempfile.TemporaryDirectory() as records:
        chosen.records = chosen.records or Path(records)
        document: dict[str, Any] = {
            **heading("startup"),
            "shape": chosen.shape,
            "deviceMemory": chosen.device_memory,
            "starts": [],
        }
        for name in ("cold", "warm"):
            found = in_a_process(chosen)
            document["starts"].append({"name": name} | found)
            write(chosen.output, document | summary(document["starts"]))
            say(f"{name}: {found.get('phase')} after {found.get('processSeconds')} s: {found.get('phases')}")
    print(json.dumps(summary(document["starts"]), indent=1))


def in_a_process(chosen: argparse.Namespace) -> dict[str, Any]:
    """One start in a process of its own; its output, or how it ended."""
    command = [sys.executable, str(Path(__file__).resolve()), "--folder", str(chosen.folder)]
    command += ["--records", str(chosen.records), "--shape", chosen.shape]
    command += ["--device-memory", chosen.device_memory] if chosen.device_memory else []
    command += ["--tiny"] if chosen.tiny else []
    done = subprocess.run([*command, "--began", repr(time.time())], stdout=subprocess.PIPE, text=True, check=False)
    documents = [line for line in done.stdout.splitlines() if line.startswith('{"phase"')]
    if len(documents) != 1:
        return {"phase": "Failed", "error": f"the process ended with {done.returncode}: {done.stdout[-2000:]}"}
    found: dict[str, Any] = json.loads(documents[0])
    return found


def summary(starts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Cold over warm; nothing while there is one start only."""
    if len(starts) < 2 or any(one["phase"] != "Ready" for one in starts):
        return {"claims": {"bothReady": False}} if len(starts) == 2 else {}
    cold, warm = starts
    speedup = cold["processSeconds"] / warm["processSeconds"]
    names = [name for name, _ in warm["phases"]]
    return {
        "speedup": speedup,
        "speedupOfStart": cold["startSeconds"] / warm["startSeconds"],
        "claims": {
            "bothReady": True,
            "warmReusedTheStoredStart": "Probe" not in names,
            "samePlacement": cold["placement"] == warm["placement"],
            "warmIs3TimesSooner": speedup >= LEAST_SPEEDUP,
        },
    }


def write_checkpoint(chosen: argparse.Namespace) -> None:
    """The folder, complete."""
    sys.path.insert(0, str(EXAMPLES))
    import real_wan
    import tiny_models
    from checkpoint_folder import write_folder

    chosen.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=chosen.folder.absolute().parent) as scratch:
        write_folder(tiny_models.tiny_wan() if chosen.tiny else real_wan.pipeline(Path(scratch)), chosen.folder)


def touch(nbytes: int) -> None:
    """Use so much host memory once, on all cores, and give it back."""
    import mmap
    from concurrent.futures import ThreadPoolExecutor

    import numpy as np

    memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    pages = np.frombuffer(memory, dtype=np.uint8)
    piece = 256 << 20

    def one(start: int) -> None:
        pages[start : start + piece : mmap.PAGESIZE] = 1

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(one, range(0, nbytes, piece)))


if __name__ == "__main__":
    main()
