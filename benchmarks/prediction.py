"""How well one watched request predicts every other placement: a real-size Wan 14B pipeline on capped cards, on a GPU.

    python benchmarks/prediction.py --output results/...json [--cards 24 32 48 80] [--frames 17 --steps 6]

One request is watched in the smallest placement, which gives a CalibrationRecord. Then, for cards of several sizes,
`planning.cost` says what a placement takes, and the same request is run in it on a card of that size, twice: alone, and
watched again. Each row of the document has ratios of measured over predicted:

- ``secondsRatio`` of the request, and ``peakRatio`` of device memory, context included;
- ``watchingRatio``: the watched request over the one before it in the same placement;
- ``bitEqual``: whether the output is that of the first watched request.

``intervals`` of a row are the seconds of the watched run, for whoever looks for the cause of a deviation. The document
is written anew after each row. Weights are random and their values do not matter. Needs 44 GiB of device and 90 GiB of
host memory; ``--tiny`` runs the same program on a tiny pipeline and the emulated card, with MiB for GiB.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Before torch is there: a card that is nearly full has no room for what the allocator's fixed segments leave over.
os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))

import torch

import real_wan
import tiny_models
from capped_card import adopt, cap, record_of
from predicted_placements import wanted
from predicted_rows import row, summary
from result import heading, say, write
from stowplan_agent.accelerators import Accelerator, open_accelerator
from stowplan_agent.lifecycle.session import Session
from stowplan_agent.planning import with_device_memory
from stowplan_api.diffusion_deployment import Shape
from stowplan_api.record import CalibrationRecord

HOST = 90
"""Units of host memory."""


@dataclass(frozen=True)
class Size:
    """What differs between the real benchmark and its rehearsal."""

    accelerator: str
    unit: int
    cards: tuple[int, ...]
    shape: Shape
    reserve_bytes: int | None
    card_bytes: int | None


def real(chosen: argparse.Namespace) -> Size:
    shape = Shape(name="video", width=chosen.width, height=chosen.height, frames=chosen.frames, steps=chosen.steps)
    return Size("cuda", 1 << 30, tuple(chosen.cards or (24, 32, 48, 80)), shape, None, None)


def tiny(chosen: argparse.Namespace) -> Size:
    shape = Shape(name="video", width=64, height=64, frames=5, steps=chosen.steps)
    return Size("emulated", 1 << 20, tuple(chosen.cards or (28, 31, 42, 64)), shape, 1 << 20, 1 << 30)


def main(arguments: list[str] | None = None) -> None:
    chosen = parsed(arguments)
    size = (tiny if chosen.tiny else real)(chosen)
    with tempfile.TemporaryDirectory() as folder:
        accelerator = open_accelerator(size.accelerator, ceiling_bytes=size.card_bytes)
        pipeline: Any = tiny_models.tiny_wan() if chosen.tiny else real_wan.pipeline(Path(folder))
        say("pipeline built")
        try:
            run(pipeline, accelerator, size, chosen)
        finally:
            accelerator.close()


def run(pipeline: Any, accelerator: Accelerator, size: Size, chosen: argparse.Namespace) -> None:
    """One watched request, then the rows of every card."""
    cards = tuple(card * size.unit for card in size.cards)
    cap(accelerator, cards[0])
    session = adopt(pipeline, accelerator, HOST * size.unit)
    say("adopted")
    record, reference = record_of(session, size.shape, cards[0], HOST * size.unit, size.reserve_bytes)
    say(f"watched; link: {record.ranks[0].link}")
    document: dict[str, Any] = {
        **heading("prediction"),
        "device": accelerator.product,
        "torch": torch.__version__,
        "record": record.to_json(),
        "rows": [],
    }
    for card in cards:
        cap(accelerator, card)
        priced = with_device_memory(record, card)
        measure(session, size, priced, cards, chosen, reference.digest, document)
    print(json.dumps(summary(document["rows"]), indent=1))
    session.engine.close()


def measure(
    session: Session,
    size: Size,
    record: CalibrationRecord,
    cards: tuple[int, ...],
    chosen: argparse.Namespace,
    digest: str,
    document: dict[str, Any],
) -> None:
    """The rows of one card, into the document as they come."""
    card = record.ranks[0].capacity_bytes
    tried: set[str] = set()
    for name, placement in wanted(record, cards, card):
        if (text := placement.model_dump_json()) in tried or (chosen.rows and name not in chosen.rows):
            continue
        tried.add(text)
        try:
            found = row(session, size.shape, size.unit, record, name, placement, digest)
        except torch.OutOfMemoryError as error:  # a prediction that was wrong: a finding, and the others go on
            say(f"{card // size.unit}: {name}: {error}")
            document.setdefault("failed", []).append({"card": card, "name": name, "error": str(error)})
            continue
        if found is not None:
            document["rows"].append(found)
        write(chosen.output, document | summary(document["rows"]))


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", type=Path, required=True, help="where the document is written, after each row")
    parser.add_argument("--cards", type=int, nargs="+", help="GiB, ascending, at least three")
    parser.add_argument("--width", type=int, default=832)
    parser.add_argument("--height", type=int, default=480)
    parser.add_argument("--frames", type=int, default=17)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rows", nargs="+", help="names of the placements to try; all of them by default")
    parser.add_argument("--tiny", action="store_true", help="a rehearsal on the emulated card")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
