"""Loading under other sizes of the staging ring and other orders: which constants are best on a machine.

    python benchmarks/loading_sweep.py --folder DIR [--set threads=12 piece_bytes=32Mi,ring_bytes=1Gi] > ...json

The product's own constants first and last, with each setting in between; a setting is of one constant or of several
(`KNOBS`). ``rate`` is in 1e9 bytes a second, ``overLimit`` as `loading` has it, and the last run of each has its
`load_breakdown`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from load_breakdown import Breakdown
from loading import LAYERS, limits, opened, ours
from result import heading, say
from stowplan_agent.accelerators import staging
from stowplan_agent.weights import device_copies
from stowplan_api.quantity import parse_quantity

KNOBS = ("threads", "piece_bytes", "ring_bytes", "rooms_ahead")
"""Of `staging.Staging`, and `device_copies.ROOMS_AHEAD`."""
DEFAULT = (
    "threads=12", "threads=16", "piece_bytes=8Mi", "ring_bytes=384Mi", "ring_bytes=512Mi",
    "piece_bytes=32Mi,ring_bytes=512Mi", "piece_bytes=8Mi,ring_bytes=512Mi", "rooms_ahead=4", "rooms_ahead=40",
)  # fmt: skip


@contextmanager
def knobs(setting: dict[str, int]) -> Iterator[None]:
    """Within it new staging rings, and loads, are of this setting; what it does not name is the product's."""
    given = dict(setting)
    with ExitStack() as stack:
        if "rooms_ahead" in given:
            stack.enter_context(patch.object(device_copies, "ROOMS_AHEAD", given.pop("rooms_ahead")))
        assert staging.Staging.__init__.__kwdefaults__ is not None
        stack.enter_context(patch.dict(staging.Staging.__init__.__kwdefaults__, given))
        yield


def parsed(text: str) -> dict[str, int]:
    """``threads=12,piece_bytes=8Mi`` as a setting. Raises ArgumentTypeError for what is none."""
    setting = {}
    for part in text.split(","):
        knob, _, value = part.partition("=")
        if knob not in KNOBS:
            raise argparse.ArgumentTypeError(f"{knob!r} is no knob; there are {', '.join(KNOBS)}")
        setting[knob] = int(parse_quantity(value))
    return setting


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--resident", type=int, default=LAYERS)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--set", type=parsed, nargs="*", default=[parsed(text) for text in DEFAULT])
    parser.add_argument("--touch", action="store_true", help="use the machine's free memory once, first")
    chosen = parser.parse_args()
    accelerator = opened(chosen.folder, touched=chosen.touch)
    found = limits(chosen.folder, accelerator)
    say(json.dumps(found))
    rows: list[dict[str, Any]] = []
    for setting in ({}, *chosen.set, {}):  # the last as the first: the machine may have changed
        breakdown = Breakdown()
        with knobs(setting):
            runs = [
                ours(chosen.folder, chosen.resident, found, breakdown if number == chosen.runs else None)
                for number in range(1, chosen.runs + 1)
            ]
        kept = {key: [run[key] for run in runs] for key in ("engineSeconds", "rate", "overLimit")}
        rows.append({"setting": setting, **kept, "breakdown": runs[-1]["breakdown"]})
        say(f"{setting or 'as it is'}: {', '.join(f'{share:.3f}' for share in kept['overLimit'])} of the limit")
    json.dump({**heading("loading_sweep"), "device": accelerator.product, "limits": found, "rows": rows}, sys.stdout)


if __name__ == "__main__":
    main()
