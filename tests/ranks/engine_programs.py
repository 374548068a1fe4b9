"""What ranks with a weights engine run: each loads the same file, and every placement is served from one copy of it."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from card_programs import open_card
from safetensors.torch import load_file, save_file
from torch import nn

from stowplan_agent.ranks import neighbourhood
from stowplan_agent.ranks.neighbourhood import Neighbourhood
from stowplan_agent.ranks.seat import Seat
from stowplan_agent.ranks.store import SharedBuffer
from stowplan_agent.weights import WeightsEngine
from stowplan_agent.weights.ledger import Tier
from stowplan_api.placement import ComponentPlacement, GroupPlacement

LAYERS: Final = 6
SIDE: Final = 64
LAYER: Final = SIDE * SIDE * 4


class Stack(nn.Module):
    """Square layers, one after another."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(SIDE, SIDE, bias=False) for _ in range(LAYERS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = torch.tanh(block(x))
        return x


def layerwise(resident: int, ranks: int, sharded: int = 0) -> ComponentPlacement:
    kept = LAYERS - resident - sharded
    group = GroupPlacement(
        name="blocks", resident_layers=resident, pinned_layers=(kept,) * ranks, sharded_layers=sharded or None
    )
    return ComponentPlacement(name="part", mode="Layerwise", groups=(group,))


def written_stack(folder: Path) -> Path:
    """The folder, with a stack's weights in it."""
    generator = torch.Generator().manual_seed(5)
    layers = {f"blocks.{number}.weight": torch.randn(SIDE, SIDE, generator=generator) / 8 for number in range(LAYERS)}
    save_file(layers, folder / "stack.safetensors")
    return folder


def check_placements(found: list[Any]) -> None:
    """Of `placements_of_ranks`, by rank: every output is right, and every share is as large as any other."""
    ranks = len(found)
    planned = {  # layers on each device, layers in shards, pinned layers of all ranks, pageable ones
        "offload": (0, 0, 0, LAYERS),
        "streamed": (0, 0, LAYERS, 0),
        "half": (LAYERS // 2, 0, LAYERS - LAYERS // 2, 0),
        "three places": (2, 2, LAYERS - 4, 0),
        "sharded": (0, LAYERS, 0, 0),
        "resident": (LAYERS, 0, 0, 0),
    }
    for of_all in zip(*found, strict=True):
        name = of_all[0][0]
        assert [right for _, right, _ in of_all] == [True] * ranks, name
        if name in planned:
            whole, shards, pinned, pageable = (layers * LAYER for layers in planned[name])
            held = {"device": whole + shards // ranks, "pinned": pinned // ranks, "pageable": pageable // ranks}
            assert [one for _, _, one in of_all] == [held] * ranks, name


@torch.no_grad()
def placements_of_ranks(seat: Seat, folder: str, card: str = "emulated") -> Any:
    """For each placement: whether outputs are as before and host copies shared, and the bytes by ledger.

    At last whether placements at random, and then one that there was before, end in what was held then.
    """

    def no_digest(_: object) -> str:
        raise AssertionError("a file says which bytes these are")

    neighbourhood.digest = no_digest
    accelerator, link = open_card(seat, card)
    module, x = Stack(), torch.ones(2, SIDE)
    module.load_state_dict(load_file(Path(folder) / "stack.safetensors"), assign=True)
    expected = module(x) if card == "emulated" else None  # a GPU rounds in its own way: its first output is right
    given = partial(Neighbourhood, circle=seat.circle, accelerator=accelerator, link=link, piece_bytes=SIDE * SIDE)
    engine = WeightsEngine(accelerator, rank=seat.rank, neighbours=given)
    engine.adopt({"part": module})
    found = []
    entries = {
        "streamed": layerwise(0, seat.ranks),
        "half": layerwise(LAYERS // 2, seat.ranks),
        "three places": layerwise(2, seat.ranks, 2),
        "sharded": layerwise(0, seat.ranks, LAYERS),
        "resident": ComponentPlacement(name="part", mode="Resident"),
        "offload": ComponentPlacement(name="part", mode="Offload"),
    }
    snapshots = {}
    for name in ("offload", "streamed", "half", "sharded", "resident", "three places", "streamed", "sharded"):
        seat.doing(f"at {name}")
        engine.place(entries[name])
        with engine.request():
            outputs = [module(x) for _ in range(3)]
        expected = outputs[0] if expected is None else expected
        engine.commit()
        engine.check()
        right = all(torch.equal(output, expected) for output in outputs)
        shared = all(isinstance(buffer, SharedBuffer) for buffer in engine._host_buffers())
        found.append([name, right and shared, {tier.value: engine.ledger.total(tier) for tier in Tier}])
        snapshots[name] = engine.snapshot()
    for name in (*random.Random(7).choices(list(entries), k=6), "three places"):
        engine.place(entries[name])
    engine.commit()
    found.append(["at random", engine.snapshot() == snapshots["three places"], {}])
    engine.close()
    accelerator.close()
    return found


PROGRAMS: Final[dict[str, Callable[..., Any]]] = {"placements_of_ranks": placements_of_ranks}
