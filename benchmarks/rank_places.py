"""The part of `ranks.py` that runs layers of a real model through the weights engine: three places for each of them.

Wan 2.2 A14B's blocks at their real size, each rank with its part of the tokens of a video. Attention is over the rank's
own tokens, without the model's collectives: less compute to hide a layer behind than sequence parallelism has, and
nothing else on the peers' links. Every row is compared with the all-resident one of the same run, bit for bit.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

from rank_cards import Cards
from stowplan_agent.ranks.neighbourhood import Neighbourhood
from stowplan_agent.weights import Timeline, WeightsEngine
from stowplan_agent.weights.ledger import Tier
from stowplan_agent.weights.timeline import Stretch
from stowplan_api.placement import ComponentPlacement, GroupPlacement

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))  # for `real_wan`

TOKENS: Final = 32760
"""Of 832x480x81, of all ranks together."""
TEXT: Final = 512


class Blocks(nn.Module):
    """The denoiser's layers, one after another."""

    def __init__(self, layers: int, dimension: int, inner: int, heads: int) -> None:
        super().__init__()
        from diffusers.models.transformers.transformer_wan import WanTransformerBlock

        blocks = (WanTransformerBlock(dimension, inner, heads, cross_attn_norm=True) for _ in range(layers))
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: torch.Tensor, text: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        """Without rotary embeddings: ``x`` is one batch of tokens."""
        for block in self.blocks:
            x = block(x, text, time, None)
        return x


def denoiser(cards: Cards, dimension: int) -> nn.Module:
    """The layers, their weights mapped from one file that rank 0 writes for all, as a checkpoint would be."""
    from real_wan import BLOCK, map_weights, random_file

    sizes = (dimension, dimension * 27 // 10, dimension // 128)
    nbytes = 8 * dimension * dimension * 2  # more than the largest matrix
    with tempfile.TemporaryDirectory() as folder:
        path = Path(cards.seat.circle.meet("folder", folder)[0].value) / "random-weights"
        if cards.seat.rank == 0:
            random_file(path, nbytes, min(BLOCK, nbytes // 2))
        cards.meet("weights written")
        noise = torch.UntypedStorage.from_file(str(path), False, nbytes)
        with torch.device("meta"):
            model = Blocks(cards.layers, *sizes).to(torch.bfloat16)
        map_weights(model, noise)
        model.eval()
        cards.meet("weights mapped")
    return model


def entry(cards: Cards, resident: int, sharded: int) -> ComponentPlacement:
    """All streamed layers pinned."""
    streamed = cards.layers - resident - sharded
    group = GroupPlacement(
        name="blocks",
        resident_layers=resident,
        sharded_layers=sharded or None,
        pinned_layers=(streamed,) * cards.seat.ranks,
    )
    return ComponentPlacement(name="denoiser", mode="Layerwise", groups=(group,))


def places(cards: Cards, _: dict[str, Any]) -> dict[str, Any]:
    """Seconds of a pass and bytes of a card, for splits of the layers over the three places.

    ``deviceBytes`` are those between requests; while layers run, ``slotBytes`` are beside them.
    """
    dimension, tokens = (256, 64) if cards.tiny else (5120, TOKENS // cards.seat.ranks)
    given = partial(Neighbourhood, circle=cards.seat.circle, accelerator=cards.accelerator, link=cards.link)
    engine = WeightsEngine(cards.accelerator, rank=cards.seat.rank, neighbours=given)
    model = denoiser(cards, dimension)
    engine.adopt({"denoiser": model})
    generator = torch.Generator().manual_seed(1)
    shapes = ((1, tokens, dimension), (1, TEXT if not cards.tiny else 8, dimension), (1, 6, dimension))
    inputs = [torch.randn(shape, generator=generator).to(cards.accelerator.device, torch.bfloat16) for shape in shapes]
    half = cards.layers // 2
    largest = max(engine.describe()[0].groups[0].layer_bytes)
    splits = ((cards.layers, 0), (0, cards.layers), (0, half), (half, half), (half, 0), (0, 0))
    rows: list[dict[str, Any]] = []
    reference: torch.Tensor | None = None
    for resident, sharded in splits:
        engine.place(entry(cards, resident, sharded))
        engine.commit()
        engine.check()
        device = engine.ledger.total(Tier.DEVICE)
        seconds, output = steady(cards, engine, lambda: model(*inputs))
        reference = output if reference is None else reference
        first = rows[0] if rows else {"secondsPerPass": seconds, "deviceBytes": device}
        rows.append(
            {
                "resident": resident,
                "sharded": sharded,
                "streamed": cards.layers - resident - sharded,
                "secondsPerPass": seconds,
                "overResident": seconds / first["secondsPerPass"],
                "deviceBytes": device,
                "ofResidentBytes": device / first["deviceBytes"],
                "slotBytes": 2 * largest if resident < cards.layers else 0,
                "hostBytes": engine.ledger.total(Tier.PINNED) + engine.ledger.total(Tier.PAGEABLE),
                "same": torch.equal(output, reference),
            }
        )
    engine.place(entry(cards, 0, 0))
    engine.close()
    return {"tokensOfRank": tokens, "rows": rows}


def steady(cards: Cards, engine: WeightsEngine, run: Callable[[], torch.Tensor]) -> tuple[float, torch.Tensor]:
    """Seconds of the device for a pass, without the first, and the last output."""
    engine.timeline = Timeline([Stretch("denoiser", cards.passes + 1, cards.passes + 1)])
    found: list[torch.Tensor] = []

    def passes() -> None:
        for _ in range(cards.passes):
            found[:] = [run()]

    with torch.no_grad(), engine.request():
        run()
        cards.meet("first pass")
        seconds = cards.seconds(passes)
        output = found.pop().cpu()
    cards.meet("passes measured")
    return seconds / cards.passes, output
