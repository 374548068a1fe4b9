"""A low-rank adapter as PEFT would wrap it around a linear layer, without PEFT, and rewrites of a stack with it."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from unit.weights.stacks import Stack


class Tuner(nn.Module):
    """A linear layer and an adapter; fused, the adapter is in the layer's weight."""

    def __init__(self, base_layer: nn.Linear, rank: int, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        weight = base_layer.weight
        low = torch.rand(rank, base_layer.in_features, generator=generator) - 0.5
        high = torch.rand(base_layer.out_features, rank, generator=generator) - 0.5
        self.base_layer = base_layer
        self.low = nn.Parameter(low.to(weight.device, weight.dtype))
        self.high = nn.Parameter(high.to(weight.device, weight.dtype))
        self.scaling = {"default": 0.5}
        self.merged_adapters: list[str] = []
        self.disable_adapters = False

    @property
    def merged(self) -> bool:
        return bool(self.merged_adapters)

    def merge(self, safe_merge: bool = False) -> None:
        if safe_merge:
            self.base_layer.weight.data = self.base_layer.weight.data + self._delta()
        else:
            self.base_layer.weight.data += self._delta()
        self.merged_adapters.append("default")

    def unmerge(self) -> None:
        if self.merged_adapters:
            self.merged_adapters.pop()
            self.base_layer.weight.data -= self._delta()

    def _delta(self) -> torch.Tensor:
        return self.high @ self.low * self.scaling["default"]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.disable_adapters and self.merged:
            self.unmerge()
        y = self.base_layer(x)
        if self.merged or self.disable_adapters:
            return y
        return y + x @ self.low.T @ self.high.T * self.scaling["default"]


def load(stack: Stack, layers: int | None = None, rank: int = 2) -> None:
    """Adapters on the first layers of both groups (all by default) and on the loose linear layer between them."""
    for number, layer in enumerate([*list(stack.first)[:layers], *list(stack.second)[:layers]]):
        layer.linear = Tuner(layer.linear, rank, number)
    stack.widen = Tuner(stack.widen, rank, 100)


def unload(stack: Stack) -> None:
    for module in list(stack.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, Tuner):
                setattr(module, name, child.base_layer)


def tuners(stack: Stack) -> Iterator[Tuner]:
    return (module for module in stack.modules() if isinstance(module, Tuner))


def fuse(stack: Stack, safe: bool = False) -> None:
    for tuner in tuners(stack):
        tuner.merge(safe_merge=safe)


def unfuse(stack: Stack) -> None:
    for tuner in tuners(stack):
        tuner.unmerge()
