"""A small table of cards: what their makers say of them, for estimates and for the marks on a frontier.

It decides nothing that is measured: a record made on a card carries that card's own numbers. Sources of the columns:

- ``nominal_gb``: the number on the box.
- ``memory_bytes``: what CUDA reports as total, less than the box says (ECC, the driver's own share). H200, A100 and the
  24 and 16 GB GeForce cards: the usable bytes of the project's own records. L4 (22.03 GiB), L40S (44.39 GiB) and
  RTX 5090 (31.36 GiB): the "total capacity" of PyTorch's out-of-memory messages in public bug reports. The others: the
  box (GB of 1024 MiB each) less 2.1 %, the largest loss among the cards without ECC above; B200 (NVIDIA's 180 GB) and
  H100 as the A100, 1 % below the box.
- ``bytes_per_second``: memory bandwidth, and ``flops``: dense bf16 tensor throughput with fp32 accumulation. NVIDIA's
  architecture papers, appendix of specifications: GA102 (RTX 3090: 936 GB/s, 71), AD102 and its appendices (RTX 4070
  Ti: 504, 80.2; RTX 4080: 717, 97.5; RTX 4090: 1008, 165.2), RTX Blackwell (RTX 5090: 1792, 209.5; RTX PRO 6000: 1792,
  503.8). NVIDIA's data sheets: L4 (300, 121), L40S (864, 362), RTX 6000 Ada (960, 364.2), A100 40 and 80 GB PCIe (1555
  and 1935, 312), H100 SXM (3350, 989.4), H200 SXM (4800, 989.4), B200 (7700, 2250). Data sheets print throughput with
  sparsity for some; this table has half of it.
- ``pcie``: the generation of an x16 slot, from the same papers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from stowplan_api.model import ContractError

GIB: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Card:
    """One card, as its maker describes it."""

    key: str
    """What ``--card`` takes."""
    name: str
    nominal_gb: int
    memory_bytes: int
    """What a process sees on an otherwise empty card."""
    bytes_per_second: float
    """Of its own memory."""
    flops: float
    """Dense bf16 with fp32 accumulation, a second."""
    pcie: int
    """Generation; 16 lanes."""


def _card(name: str, nominal_gb: int, gib: float, gb_per_second: float, tflops: float, pcie: int) -> Card:
    key = name.lower().replace(" ", "-")
    return Card(key, name, nominal_gb, int(gib * GIB), gb_per_second * 1e9, tflops * 1e12, pcie)


CARDS: Final = (
    _card("RTX 4070 Ti", 12, 11.74, 504, 80.2, 4),
    _card("RTX 4080", 16, 15.5, 717, 97.5, 4),
    _card("RTX 3090", 24, 23.5, 936, 71, 4),
    _card("RTX 4090", 24, 23.5, 1008, 165.2, 4),
    _card("L4", 24, 22.03, 300, 121, 4),
    _card("RTX 5090", 32, 31.36, 1792, 209.5, 5),
    _card("A100 40GB", 40, 39.16, 1555, 312, 4),
    _card("L40S", 48, 44.39, 864, 362, 4),
    _card("RTX 6000 Ada", 48, 46.99, 960, 364.2, 4),
    _card("A100 80GB", 80, 79.2, 1935, 312, 4),
    _card("H100", 80, 79.2, 3350, 989.4, 5),
    _card("RTX PRO 6000", 96, 93.98, 1792, 503.8, 5),
    _card("H200", 141, 139.8, 4800, 989.4, 5),
    _card("B200", 180, 178.2, 7700, 2250, 5),
)
"""By size, then as listed."""


def card_named(name: str) -> Card:
    """The card that ``--card`` names. Raises `ContractError` with the nearest name, and all of them."""
    wanted = name.strip().lower().replace(" ", "-").replace("_", "-")
    for card in CARDS:
        if wanted in (card.key, card.key.replace("-", "")):
            return card
    keys = [card.key for card in CARDS]
    close = get_close_matches(wanted, keys, n=1)
    hint = f"did you mean {close[0]}? the" if close else "the"
    raise ContractError(f"--card: {name!r} is no card of the table; {hint} table has {', '.join(keys)}")


def sizes_of_cards(least: int, most: int) -> dict[int, tuple[Card, ...]]:
    """By bytes between ``least`` and ``most``: the cards that were sold as one size, at the fewest bytes any has.

    A mark for "24 GB" that holds for every card of that size must not promise what the smallest of them lacks.
    """
    by_size: dict[int, list[Card]] = {}
    for card in CARDS:
        by_size.setdefault(card.nominal_gb, []).append(card)
    return {size: tuple(cards) for cards in by_size.values() if least <= (size := _fewest(cards)) <= most}


def _fewest(cards: Iterable[Card]) -> int:
    return min(card.memory_bytes for card in cards)
