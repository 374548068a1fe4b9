"""What the planner's answer gives away: planned placements against others, all measured on capped cards, on a GPU.

    python benchmarks/regret.py --output results/...json [--caps 24 32 48 80] [--budget-seconds 45]

Wan 14B's denoiser, UMT5-XXL's encoder and Wan's VAE at real size. One request is watched, once. Then for each cap the
planner's placement and at least twelve others that fit (`rival_placements`) run the same request, with torch's
allocator held to the cap; and so do diffusers' own options (`diffusers_options`). With few frames a request is bound by
the link on the small cards and by compute on the large ones. The document, written anew after each row, has for a cap:

- ``regret``: seconds of the plan over those of the best rival, less 1; below 0 where the plan is the best. Each
  placement runs a request of one step and then the one that counts; the plan and the two rivals closest to it, within
  5 %, then do so again, in turn, and medians of these later seconds are compared. ``pairs`` has them all.
- ``rows``: predicted and measured seconds, peak bytes, or ``out of memory``.
- ``diffusers``: the same for each option; ``speedup`` is its seconds over the plan's.

``claims`` says whether every regret is at most 2 %, whether the plan runs wherever an option does, and whether it is at
least as fast. Host copies of what is resident are kept between rows, so that moves are short; they change no request.
Needs 64 GiB of device and 100 GiB of host memory; ``--tiny`` rehearses it on the emulated card, with MiB for GiB.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Before torch is there: a card that is nearly full has no room for what the allocator's fixed segments leave over.
os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))

import diffusers
import torch
from diffusers import WanPipeline

import real_wan
import tiny_models
from capped_card import adopt, cap, record_of
from contest import Contest, sweep
from diffusers_options import GROUP_OFFLOAD, MODEL_OFFLOAD, SEQUENTIAL, WHOLE, Plain
from result import BEGAN, heading, say, write
from stowplan_agent.accelerators import Accelerator, open_accelerator
from stowplan_agent.planning import with_device_memory
from stowplan_api.diffusion_deployment import Shape

HOST_UNITS = 90


@dataclass(frozen=True)
class Scale:
    """What differs between the benchmark and its rehearsal."""

    accelerator: str
    unit: int
    caps: tuple[int, ...]
    shape: Shape
    reserve_bytes: int | None = None
    card_bytes: int | None = None


def real(chosen: argparse.Namespace) -> Scale:
    shape = Shape(name="video", width=chosen.width, height=chosen.height, frames=chosen.frames, steps=chosen.steps)
    return Scale("cuda", 1 << 30, tuple(chosen.caps or (24, 32, 48, 80)), shape)


def tiny(chosen: argparse.Namespace) -> Scale:
    shape = Shape(name="video", width=32, height=32, frames=5, steps=2)
    return Scale("emulated", 1 << 20, tuple(chosen.caps or (24, 31, 42, 64)), shape, 1 << 20, 1 << 30)


def options_of(plain: Plain, scale: Scale, rows: list[dict[str, Any]], tell: Callable[[], None]) -> None:
    """Each of diffusers' options, into the caps' rows: measured on the smallest cap, which stands for larger ones."""
    for option in (*GROUP_OFFLOAD, WHOLE, MODEL_OFFLOAD, SEQUENTIAL):
        ran: dict[str, Any] | None = None
        for row in rows:
            if option is SEQUENTIAL and any(one["outcome"] == "ran" for one in row["diffusers"]):
                continue
            if ran is None:
                cap(plain.accelerator, row["capBytes"])
                found = plain.measured(option, scale.shape, row["planned"])
                found["capBytes"] = row["capBytes"]
                ran = found if found["outcome"] == "ran" else None
            else:
                found = ran
            speedup = found["seconds"] / row["planned"] if "seconds" in found and row["planned"] else None
            row["diffusers"].append(found | {"speedup": speedup})
            tell()


def claims(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The bars, over all caps. Keeping everything on the device is no way to offload, and is not compared with."""
    regrets = [row["regret"] for row in rows]
    options = [(row, one) for row in rows for one in row["diffusers"] if one["outcome"] == "ran"]
    speedups = [one["speedup"] or 0.0 for _, one in options if one["name"] != WHOLE.name]
    return {
        "worstRegret": max(regrets) if regrets and None not in regrets else None,
        "regretAtMost2Percent": bool(regrets) and all(one is not None and one <= 0.02 for one in regrets),
        "runsWhereverDiffusersDoes": all(row["planned"] is not None for row, _ in options),
        "leastSpeedup": min(speedups, default=None),
        "asFastAsEachOption": bool(speedups) and min(speedups) >= 1,
        "leastRivals": min((row["rivals"] for row in rows), default=0),
        "bitEqual": all(row.get("bitEqual", True) for row in rows),
    }


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True, help="where the document is written, after each row")
    parser.add_argument("--caps", type=int, nargs="+", help="GiB, ascending")
    parser.add_argument("--budget-seconds", type=float, default=45, help="a cap, before its close rivals run again")
    parser.add_argument("--width", type=int, default=832)
    parser.add_argument("--height", type=int, default=480)
    parser.add_argument("--frames", type=int, default=9)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--no-diffusers", action="store_true")
    parser.add_argument("--tiny", action="store_true", help="a rehearsal on the emulated card")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    chosen = parsed(arguments)
    scale = (tiny if chosen.tiny else real)(chosen)
    with tempfile.TemporaryDirectory() as folder:
        accelerator = open_accelerator(scale.accelerator, ceiling_bytes=scale.card_bytes)
        pipeline = tiny_models.tiny_wan() if chosen.tiny else real_wan.pipeline(Path(folder))
        say("pipeline built")
        try:
            run(pipeline, accelerator, scale, chosen)
        finally:
            accelerator.close()


def run(pipeline: Any, accelerator: Accelerator, scale: Scale, chosen: argparse.Namespace) -> None:
    """All caps, then all options."""
    host_bytes = HOST_UNITS * scale.unit
    session = adopt(pipeline, accelerator, host_bytes)
    say("adopted")
    cap(accelerator, scale.caps[0] * scale.unit)
    record, reference = record_of(session, scale.shape, scale.caps[0] * scale.unit, host_bytes, scale.reserve_bytes)
    say(f"watched: {reference.seconds:.3f} s")
    rows: list[dict[str, Any]] = []
    document: dict[str, Any] = {
        **heading("regret"),
        "device": accelerator.product,
        "torch": torch.__version__,
        "diffusers": diffusers.__version__,
        "record": record.to_json(),
        "caps": rows,
    }

    def tell() -> None:
        write(chosen.output, document | {"seconds": time.monotonic() - BEGAN, "claims": claims(rows)})

    for units in scale.caps:
        cap(accelerator, units * scale.unit)
        say(f"cap of {units}")
        found = Contest(session, with_device_memory(record, units * scale.unit), scale.shape)
        rows.append({})

        def tell_rows(found: Contest = found, units: int = units) -> None:
            rows[-1] = found.document(units * scale.unit, reference.digest)
            tell()

        sweep(found, chosen.budget_seconds, tell_rows)
        tell_rows()
    session.engine.drop([part.name for part in session.engine.describe()])
    session.engine.close()
    if not chosen.no_diffusers:
        plain = Plain(pipeline, WanPipeline, accelerator, session.pipeline.prompts.probing)
        say(f"diffusers: {plain.locked_bytes / scale.unit:.1f} locked")
        options_of(plain, scale, rows, tell)
        plain.close()
    tell()
    print(json.dumps(claims(rows), indent=1))


if __name__ == "__main__":
    main()
