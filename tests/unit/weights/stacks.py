"""Small modules that hold weights in every way a real model does, and a card to place them on."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from torch import nn

from stowplan_agent.accelerators.emulated import EmulatedAccelerator, EmulatedCard
from stowplan_agent.weights import WeightsEngine
from stowplan_agent.weights.adoption import survey, take_over
from stowplan_agent.weights.component import ManagedComponent
from stowplan_agent.weights.ledger import Ledger, Tier
from stowplan_agent.weights.unit import Unit
from stowplan_api.placement import ComponentPlacement, GroupPlacement, Lifetime, Policy

WIDTH = 16


class Layer(nn.Module):
    """A parameter of its own besides those of a child, and a buffer that every forward pass counts up."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(width) + 0.5)
        self.linear = nn.Linear(width, width)
        self.register_buffer("passes", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.passes.add_(1)
        return torch.tanh(self.linear(x)) * self.scale


class Stack(nn.Module):
    """Two groups of layers between loose weights; ``order`` is in which order they run."""

    def __init__(self, first: int = 5, second: int = 4, width: int = WIDTH) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.tokens = nn.Parameter(torch.rand(width))
        self.first = nn.ModuleList(Layer(width) for _ in range(first))
        self.second = nn.ModuleList(Layer(2 * width) for _ in range(second))
        self.widen = nn.Linear(width, 2 * width)
        self.register_buffer("table", torch.rand(2 * width), persistent=False)
        self.order: list[tuple[str, int]] = [("first", index) for index in range(first)]
        self.order += [("widen", 0), *(("second", index) for index in range(second))]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.tokens
        for name, index in self.order:
            part = getattr(self, name)
            x = part(x) if name == "widen" else part[index](x)
        return x + self.table

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        return self(x) * 2


@contextmanager
def emulated_card(capacity: int = 1 << 30, **card: float) -> Iterator[EmulatedAccelerator]:
    accelerator = EmulatedAccelerator(EmulatedCard(capacity_bytes=capacity, outside_bytes=0, **card))  # type: ignore[arg-type]
    try:
        yield accelerator
    finally:
        accelerator.close()


def managed(module: nn.Module, accelerator: EmulatedAccelerator, ledger: Ledger) -> ManagedComponent:
    with torch.no_grad():
        component = take_over(survey("part", module), accelerator, ledger)
        component.place(offload(), rank=0)
        return component


def units_of(sizes: list[int], accelerator: EmulatedAccelerator, ledger: Ledger) -> list[Unit]:
    """Units of these numbers of 256-byte blocks, each full of its own index plus one."""
    units = []
    for index, blocks in enumerate(sizes):
        module = nn.Module()
        for number in range(blocks):
            weight = nn.Parameter(torch.full((64,), float(index + 1)), requires_grad=False)
            module.register_parameter(f"p{number}", weight)
        units.append(managed(module, accelerator, ledger).loose)
    return units


def resident(name: str = "part") -> ComponentPlacement:
    return ComponentPlacement(name=name, mode="Resident")


def offload(name: str = "part", pinned: int = 0, prefetch: bool = False) -> ComponentPlacement:
    return ComponentPlacement(name=name, mode="Offload", pinned_bytes=(pinned,), prefetch=prefetch or None)


def layerwise(
    kept: dict[str, int],
    *,
    name: str = "part",
    lifetime: Lifetime = "Permanent",
    loose: Lifetime = "Permanent",
    policy: Policy = "Strided",
    slots: int = 2,
    pinned: int = 0,
    sharded: int | None = None,
) -> ComponentPlacement:
    groups = tuple(
        GroupPlacement(
            name=group,
            resident_layers=count,
            policy=policy,
            lifetime=lifetime,
            slots=slots,
            pinned_layers=(pinned,),
            sharded_layers=sharded,
        )
        for group, count in kept.items()
    )
    return ComponentPlacement(name=name, mode="Layerwise", loose_lifetime=loose, groups=groups)


def balances(ledger: Ledger) -> dict[str, int]:
    return {tier.value: ledger.total(tier) for tier in Tier}


def check(engine: WeightsEngine) -> None:
    """The ledger agrees with the card to the byte, and with the kernel."""
    engine.check()


PLACEMENTS: dict[str, Callable[[str], ComponentPlacement]] = {
    "resident": resident,
    "offload": lambda name: offload(name, pinned=4000),
    "streamed": lambda name: layerwise({"first": 0, "second": 0}, name=name, loose="Forward"),
    "half": lambda name: layerwise({"first": 2, "second": 2}, name=name, lifetime="Forward", slots=3, pinned=3),
}


@contextmanager
def engine_of(placement: str, *names: str, **card: float) -> Iterator[SimpleNamespace]:
    """An engine over stacks of these names in one placement, inputs, and outputs from before."""
    with emulated_card(**card) as accelerator, torch.no_grad():
        stacks = {name: Stack() for name in names or ("part",)}
        x = torch.rand(3, 16)
        expected = next(iter(stacks.values()))(x)
        engine = WeightsEngine(accelerator)
        engine.adopt(stacks)
        for name in stacks:
            engine.place(PLACEMENTS[placement](name))
        yield SimpleNamespace(engine=engine, stacks=stacks, x=x, expected=expected, card=accelerator)
        check(engine)
        engine.close()
