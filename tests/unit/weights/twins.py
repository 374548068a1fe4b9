"""A stack under management and its twin, compared after the same change: for the tests of rewriting."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256

import torch
from torch import nn

from stowplan_agent.weights import WeightsEngine
from unit.weights.stacks import Stack, check
from unit.weights.tuners import fuse, load, unfuse, unload

Step = Callable[[Stack], None]
STEPS: dict[str, Step] = {
    "load": load,
    "fuse": fuse,
    "unfuse": unfuse,
    "fuse into other memory": lambda stack: fuse(stack, safe=True),
    "unload": unload,
    "load on some layers only": lambda stack: load(stack, layers=2, rank=40),
    "fuse again": fuse,
    "unload when fused": unload,
}


def aligned_twin() -> Stack:
    """Weights at 64-byte addresses at least, as packed ones: kernels for others round differently."""
    stack = Stack()
    for tensor in [*stack.parameters(), *stack.buffers()]:
        tensor.data = tensor.data.clone()
    return stack


def ask(engine: WeightsEngine, stack: Stack, x: torch.Tensor, passes: int = 2) -> torch.Tensor:
    with torch.no_grad(), engine.request():
        for _ in range(passes):
            output = stack(x)
    check(engine)
    return output


def digest(stack: nn.Module) -> str:
    found = sha256()
    for name, tensor in [*stack.named_parameters(), *stack.named_buffers()]:
        found.update(name.encode() + tensor.detach().contiguous().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def sizes(engine: WeightsEngine) -> list[tuple[int, ...]]:
    (part,) = engine.describe()
    return [(part.loose_bytes,), *(group.layer_bytes for group in part.groups)]
