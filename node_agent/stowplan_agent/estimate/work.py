"""How long a network takes on a card and what it holds while it runs: formulas, before anything is measured.

Transformers, for one pass of one layer of P parameters over T tokens of width W (the smaller side of its largest
matrix):

    operations = 2 P T + 4 T^2 W                      every weight once a token; attention scores and their use
    seconds    = max(operations / (0.55 x dense bf16 throughput), bytes / (0.8 x memory bandwidth))
    activations = 12 T W x 2 bytes + 128 MiB

0.55, 12 and 128 MiB are from the one denoiser that the project measured (PLANNING.md, section 3: Wan 14B on an H200,
40 layers of 670 MiB, W 5120): the formulas give 0.283 and 3.31 s a pass where 0.2836 and 3.072 s were measured at 4,800
and 32,760 tokens, and 0.67 and 3.88 GiB of activations where 0.56 and 3.46 were. 0.8 of the bandwidth is assumed.
Sparse experts, windows and networks that shrink inside (UNets) take less than this.

Decoders of pictures, by convolution: each weight is used once a position of its level, where ``up_blocks.I`` runs at
2^I times the latents' sides:

    operations = sum of 2 x elements x positions      seconds = operations / (0.1 x throughput)
    activations = 10 maps x pixels x channels x frames of one latent x 2 bytes, the picture as float32, and 128 MiB

One latent frame at a time is assumed, as causal video VAEs and tiled ones decode. 0.1 lies between what the project's
records assume for Wan (0.08) and for Qwen-Image (0.2). With 10 maps the formula gives 3.34 GiB for Wan at 832x480x81
and 2.64 GiB for a picture of 1024x1024, where the records say 3.47 and 2.62.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Final

from stowplan_agent.estimate.cards import Card
from stowplan_agent.inventory import LayerShapes, TensorInfo

ATTAINED: Final = 0.55
ATTAINED_BY_CONVOLUTIONS: Final = 0.1
ATTAINED_BANDWIDTH: Final = 0.8
ELEMENT: Final = 2
"""Bytes of a bf16 number."""
MAPS_A_TOKEN: Final = 12
WORKSPACE: Final = 128 << 20
MAPS_A_PIXEL: Final = 10
_LEVEL: Final = re.compile(r"\bup_blocks\.(\d+)\.")


@dataclass(frozen=True, slots=True)
class Canvas:
    """A request's picture in the measures of the model: pixels, frames, and latents of its VAE."""

    width: int
    height: int
    frames: int
    scale: int
    """Pixels a latent, along one side."""
    temporal: int
    """Frames a latent, after the first; 1 for pictures."""

    @property
    def latent_frames(self) -> int:
        """Latents along time."""
        return (self.frames - 1) // self.temporal + 1

    @property
    def picture_bytes(self) -> int:
        """The decoded frames as float32."""
        return self.width * self.height * self.frames * 3 * 4


def layer_seconds(card: Card, nbytes: int, tokens: int, width: int) -> float:
    """Seconds of one pass of one transformer layer of ``nbytes`` of bf16 weights."""
    operations = 2 * (nbytes // ELEMENT) * tokens + 4 * tokens**2 * width
    return max(operations / (ATTAINED * card.flops), nbytes / (ATTAINED_BANDWIDTH * card.bytes_per_second))


def loose_seconds(card: Card, nbytes: int) -> float:
    """Seconds to read what is outside the layers once."""
    return nbytes / (ATTAINED_BANDWIDTH * card.bytes_per_second)


def token_activations(tokens: int, width: int) -> int:
    """Bytes that a transformer holds beside its weights."""
    return MAPS_A_TOKEN * tokens * width * ELEMENT + WORKSPACE


def width_of(layer: LayerShapes) -> int:
    """The smaller side of the layer's largest matrix; 0 for a layer without one."""
    matrices = [shape for _, shape in layer if len(shape) == 2]
    return min(max(matrices, key=prod)) if matrices else 0


def decode_seconds(card: Card, tensors: Mapping[str, TensorInfo], canvas: Canvas) -> float:
    """Seconds in which the decoder of a VAE makes the picture; at least those of reading its weights."""
    operations = nbytes = 0
    for name, info in _decoder(tensors).items():
        nbytes += prod(info.shape) * ELEMENT
        if len(info.shape) >= 3:
            operations += 2 * prod(info.shape) * _positions(_level(name), canvas)
    return max(operations / (ATTAINED_BY_CONVOLUTIONS * card.flops), loose_seconds(card, nbytes))


def decode_activations(tensors: Mapping[str, TensorInfo], canvas: Canvas) -> int:
    """Bytes that decoding holds beside the weights."""
    convolutions = {name: info for name, info in _decoder(tensors).items() if len(info.shape) >= 3}
    deepest = max((_level(name) for name in convolutions), default=0)
    channels = min((i.shape[0] for name, i in convolutions.items() if _level(name) == deepest and i.shape[0] > 4),
                   default=3)  # fmt: skip
    pixels = canvas.width * canvas.height * canvas.temporal
    return MAPS_A_PIXEL * pixels * channels * ELEMENT + canvas.picture_bytes + WORKSPACE


def _decoder(tensors: Mapping[str, TensorInfo]) -> dict[str, TensorInfo]:
    return {name: info for name, info in tensors.items() if name.startswith("decoder.")}


def _level(name: str) -> int:
    match = _LEVEL.search(name)
    return int(match[1]) if match else 0


def _positions(level: int, canvas: Canvas) -> int:
    sides = min(2**level, canvas.scale)
    frames = min(canvas.latent_frames * min(2**level, canvas.temporal), max(canvas.frames, canvas.latent_frames))
    return int(canvas.width * canvas.height * sides**2 // canvas.scale**2 * frames)
