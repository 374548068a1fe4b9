"""Several GPUs of one host: what each link gives, what peers give, and what streaming shares over all of them gives.

    python benchmarks/ranks.py > results/...json [--ranks 2] [--layers 8] [--layer-mib 670] [--passes 4]

One process a GPU, as in a pod, under the agent's own supervisor. Every figure is of one run:

- ``link``: bytes a second from pinned host memory to each card, each rank alone, and all of them at once.
- ``store``: filling and locking one copy that all ranks share (``link`` has those of a rank's own), and fetching shares
  of it, all ranks at once. ``sharedHugePages`` says whether the kernel gives shared memory huge pages.
- ``peer``: bytes a second from card to card, one way, both ways, and beside the host links.
- ``lockstep``: fetch a share and swap, with a barrier of the hosts after every layer: needs nothing of the streams.
- ``stream``: the same as the engine does it, by turns that the streams keep; ``ratio`` is to the rate of one link, all
  of them being busy. With as much compute beside it, ``overCompute`` is seconds over the longer of the two. A ring
  opens and closes with each interval of a request: ``openSeconds``, ``closeSeconds``.
- ``assemble``: layers that lie in shards on the cards; ``overCompute`` is seconds over those of the compute alone.
- ``places``: Wan 14B layers of real size through the weights engine, resident, in shards, streamed and mixed;
  ``overResident`` is seconds of a pass over those of the all-resident row, ``ofResidentBytes`` the same of the card's
  bytes of weights.

Bytes are compared after every part. Written anew after each part, so that one that fails leaves the others' figures.
Takes some two minutes and 20 GiB of host memory; ``--tiny`` rehearses it on emulated cards, of MiB as KiB.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from rank_cards import Cards
from rank_measures import MEASURES
from rank_places import places
from result import heading, say, write
from stowplan_agent.ranks.seat import Seat, take_seat
from stowplan_agent.ranks.supervision import Supervisor


def supervise(chosen: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "result.json"
        command = [sys.executable, __file__, *sys.argv[1:], "--into", str(found)]
        code = Supervisor([command] * chosen.ranks, output=(sys.stderr.buffer, sys.stderr.buffer)).run()
        if found.exists():
            print(found.read_text(), end="")
    return code


def measure(seat: Seat, chosen: argparse.Namespace) -> None:
    cards = Cards(seat, tiny=chosen.tiny, layers=chosen.layers, layer_mib=chosen.layer_mib, passes=chosen.passes)
    document: dict[str, Any] = {
        **heading("ranks"),
        "device": cards.accelerator.product,
        "ranks": seat.ranks,
        "layers": chosen.layers,
        "layerBytes": cards.nbytes,
        "passes": chosen.passes,
        "sharedHugePages": huge_pages(),
    }
    for name, part in (MEASURES | {"places": places}).items():
        if chosen.parts and name not in chosen.parts.split(","):
            continue
        seat.doing(f"measuring {name}")
        try:
            own = part(cards, document)
        except BaseException:
            seat.board.release()  # streams that wait for this rank would hold up everybody's end
            raise
        document[name] = [one.value for one in seat.circle.meet(f"{name}: figures", own, patience=300.0)]
        if seat.rank == 0:
            say(f"{name}: {json.dumps(document[name])}")
            write(Path(chosen.into), document)
    cards.close()


def huge_pages() -> str:
    """The kernel's setting, in brackets, and how many pages of 2 MiB are reserved and free."""
    memory = Path("/sys/kernel/mm")
    try:
        enabled = (memory / "transparent_hugepage/shmem_enabled").read_text().strip()
        free = (memory / "hugepages/hugepages-2048kB/free_hugepages").read_text().strip()
    except OSError:
        return "unknown"
    return f"{enabled}, {free} reserved"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--layer-mib", type=int, default=670)
    parser.add_argument("--passes", type=int, default=4)
    parser.add_argument("--parts", default="", help="names with commas between; all of them if left out")
    parser.add_argument("--tiny", action="store_true", help="a rehearsal on emulated cards, of MiB as KiB")
    parser.add_argument("--into", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    seat = take_seat(patience=300.0)
    if seat is None:
        return supervise(chosen)
    measure(seat, chosen)
    return 0


if __name__ == "__main__":
    sys.exit(main())
