"""Adapters over a real GPU: fused in any placement, weights and outputs are those of a twin that never left the card.

bfloat16, because that is where host and device round a fused weight differently. Run by hand, as its neighbours are:
``pytest -m gpu tests/gpu``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

from gpu.test_cuda_engine import ENTRIES, ask
from stowplan_agent.accelerators.cuda import CudaAccelerator
from stowplan_agent.weights import RewriteError, WeightsEngine
from unit.weights.stacks import Stack, balances, check, offload
from unit.weights.tuners import fuse, load, tuners, unfuse, unload

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU is visible to torch"),
]

WIDTH = 512
PLACEMENTS = ENTRIES | {"offload, pinned": offload(pinned=4 << 20)}
STEPS: dict[str, Callable[[Stack], None]] = {
    "load": lambda stack: load(stack, rank=16),
    "fuse": fuse,
    "unfuse": unfuse,
    "fuse into other memory": lambda stack: fuse(stack, safe=True),
    "unload when fused": unload,
    "load on some layers": lambda stack: load(stack, layers=2, rank=64),
    "fuse again": fuse,
}


@pytest.fixture(scope="module")
def card() -> Iterator[CudaAccelerator]:
    accelerator = CudaAccelerator()
    yield accelerator
    accelerator.close()


@pytest.fixture
def x(card: CudaAccelerator) -> torch.Tensor:
    x = torch.rand(256, WIDTH, generator=torch.Generator().manual_seed(3))
    return x.to(card.device, torch.bfloat16)


@pytest.fixture
def stack() -> Stack:
    return Stack(width=WIDTH).to(torch.bfloat16)


@pytest.fixture
def engine(card: CudaAccelerator, stack: Stack) -> Iterator[WeightsEngine]:
    with torch.no_grad():
        found = WeightsEngine(card)
        found.adopt({"part": stack})
        yield found
        found.close()
        found.place(offload())
        check(found)


def weights(stack: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().cpu().clone() for name, tensor in stack.named_parameters()}


def same(one: nn.Module, other: nn.Module) -> bool:
    mine, others = weights(one), weights(other)
    return mine.keys() == others.keys() and all(torch.equal(tensor, others[name]) for name, tensor in mine.items())


@pytest.mark.parametrize("name", PLACEMENTS)
@torch.no_grad()
def test_every_step_is_bit_equal_to_a_resident_twin(
    name: str, engine: WeightsEngine, stack: Stack, x: torch.Tensor
) -> None:
    twin = Stack(width=WIDTH).to(x.device, torch.bfloat16)
    engine.place(PLACEMENTS[name])
    for step, change in STEPS.items():
        change(twin)
        with engine.rewriting():
            change(stack)
        check(engine)
        assert same(stack, twin), step
        assert torch.equal(ask(engine, stack, x, passes=1), twin(x)), step
        assert engine.entry("part").mode == PLACEMENTS[name].mode
    for entry in PLACEMENTS.values():
        engine.place(entry)
        engine.commit()
        assert torch.equal(ask(engine, stack, x, passes=1), twin(x))


@pytest.mark.parametrize("name", ["resident", "streamed", "half"])
@torch.no_grad()
def test_a_refused_fuse_changes_nothing(name: str, engine: WeightsEngine, stack: Stack, x: torch.Tensor) -> None:
    engine.place(PLACEMENTS[name])
    with engine.rewriting():
        load(stack)
    engine.commit()
    bits, held, output = weights(stack), balances(engine.ledger), ask(engine, stack, x, passes=1)
    room = sum(engine.describe()[0].groups[0].layer_bytes)
    with pytest.raises(RewriteError, match="part"), engine.rewriting(room):
        fuse(stack)
    check(engine)
    assert not any(tuner.merged for tuner in tuners(stack))
    assert balances(engine.ledger) == held
    assert all(torch.equal(tensor, weights(stack)[key]) for key, tensor in bits.items())
    assert torch.equal(ask(engine, stack, x, passes=1), output)


@torch.no_grad()
def test_adapters_lie_where_their_layer_runs(engine: WeightsEngine, stack: Stack, x: torch.Tensor) -> None:
    """PEFT puts them beside the base weight, which for a streamed layer is the host."""
    engine.place(PLACEMENTS["half"])
    with engine.rewriting():
        load(stack)
        assert {tuner.low.device.type for tuner in tuners(stack)} == {"cpu", "cuda"}
    seen = set()
    for layer in [*stack.first, *stack.second]:
        layer.linear.register_forward_pre_hook(lambda tuner, _: seen.add((tuner.low.device, tuner.high.device)))
    ask(engine, stack, x, passes=1)
    assert {device.type for pair in seen for device in pair} == {"cuda"}
