"""Cases T4 and T5 on a real GPU, and a fault at every operation of an apply there.

Needs torch with CUDA and nothing else. Run by hand: ``pytest -m gpu tests/gpu``.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch

from stowplan_agent.accelerators.announced import announce
from stowplan_agent.accelerators.cuda import CudaAccelerator
from stowplan_agent.transaction import (
    ApplyError,
    Criteria,
    Measured,
    Point,
    Points,
    Reference,
    apply,
    difference,
    judge,
)
from stowplan_agent.weights import WeightsEngine
from stowplan_api.placement import ComponentPlacement, Placement
from unit.weights.stacks import Stack, balances, check, layerwise, offload, resident

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU is visible to torch"),
]

WIDTH = 1024  # layers of 4 and 16 MiB
MIB = 1 << 20
HALF = layerwise({"first": 2, "second": 2}, slots=3, pinned=2)


@pytest.fixture(scope="module")
def card() -> Iterator[CudaAccelerator]:
    accelerator = CudaAccelerator()
    announce(accelerator)
    yield accelerator
    accelerator.close()


@pytest.fixture
def x(card: CudaAccelerator) -> torch.Tensor:
    return torch.rand(256, WIDTH, generator=torch.Generator().manual_seed(3)).to(card.device)


@pytest.fixture
def expected(card: CudaAccelerator, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return Stack(width=WIDTH).to(card.device)(x).clone()


@contextmanager
def managed(card: CudaAccelerator, stack: Stack) -> Iterator[WeightsEngine]:
    engine = WeightsEngine(card)
    engine.adopt({"part": stack})
    try:
        yield engine
        check(engine)
    finally:
        engine.drop(["part"])  # the card is the next test's as well
        engine.close()


def go(engine: WeightsEngine, entry: ComponentPlacement, faults: tuple[Point, ...] = ()) -> Points:
    points = Points(faults)
    now, target = Placement(components=(engine.entry("part"),)), Placement(components=(entry,))
    with points.within("apply"):
        apply(engine, difference(now, target), check=engine.check)
    return points


def ask(engine: WeightsEngine, stack: Stack, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad(), engine.request():
        return stack(x)


def on_the_cpu(stack: Stack, device: torch.device) -> None:
    stack.cpu()


def on_the_device(stack: Stack, device: torch.device) -> None:
    stack.to(device)


def half_moved(stack: Stack, device: torch.device) -> None:
    stack.first.to(device)
    stack.second[1].to(device)


@pytest.mark.parametrize("hand_over", [on_the_cpu, on_the_device, half_moved])
def test_t4_however_it_is_handed_over_it_ends_the_same(
    card: CudaAccelerator,
    x: torch.Tensor,
    expected: torch.Tensor,
    hand_over: Callable[[Stack, torch.device], None],
) -> None:
    stack = Stack(width=WIDTH)
    hand_over(stack, card.device)
    with managed(card, stack) as engine:
        go(engine, HALF)
        engine.commit()
        held = sum(unit.nbytes for unit in [stack_loose(stack), *kept(stack)])
        assert balances(engine.ledger)["device"] == pytest.approx(held, rel=0.01)
        assert torch.equal(ask(engine, stack, x), expected)


def stack_loose(stack: Stack) -> torch.Tensor:
    loose = [stack.tokens, stack.table, *stack.widen.parameters()]
    return torch.empty(sum(tensor.nbytes for tensor in loose), dtype=torch.uint8)


def kept(stack: Stack) -> list[torch.Tensor]:
    """Two layers of each group: the weights of one are alike."""
    layers = [stack.first[0], stack.first[1], stack.second[0], stack.second[1]]
    return [torch.empty(sum(p.nbytes for p in layer.parameters()), dtype=torch.uint8) for layer in layers]


def test_a_fault_at_any_operation_gives_everything_back(
    card: CudaAccelerator, x: torch.Tensor, expected: torch.Tensor
) -> None:
    stack = Stack(width=WIDTH)
    with managed(card, stack) as engine:
        go(engine, HALF)
        engine.commit()
        held, names = balances(engine.ledger), go(engine, resident()).all()
        go(engine, HALF)
        engine.commit()
        for name in names:
            point = Point.parse(f"{name}+" if ":allocate." in name else name)
            assert point is not None
            with pytest.raises(ApplyError, match="was injected"):
                go(engine, resident(), (point,))
            assert balances(engine.ledger) == held, name
            assert torch.equal(ask(engine, stack, x), expected), name


@contextmanager
def room_of(nbytes: int, device: torch.device) -> Iterator[None]:
    """This process may take so many bytes more than its allocator has now."""
    gc.collect()
    torch.cuda.empty_cache()
    _, total = torch.cuda.mem_get_info(device)
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved(device) + nbytes) / total, device)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, device)


def test_t5_free_memory_in_pieces_smaller_than_a_layer(
    card: CudaAccelerator, x: torch.Tensor, expected: torch.Tensor
) -> None:
    """One more try with an empty cache, then all is as before; the reserved peak is judged, not the allocated one."""
    stack = Stack(width=WIDTH)
    with managed(card, stack) as engine:
        go(engine, offload(pinned=64 * MIB))
        held = balances(engine.ledger)
        with room_of(180 * MIB, card.device):  # the stack takes 92
            pieces = [torch.empty(MIB, dtype=torch.uint8, device=card.device) for _ in range(150)]
            del pieces[::2]  # 105 MiB are free, and of 75 of them no two MiB lie side by side
            points = Points()
            with points.within("apply"), pytest.raises(ApplyError) as caught:
                target = Placement(components=(resident(),))
                apply(engine, difference(Placement(components=(engine.entry("part"),)), target), check=engine.check)
            assert caught.value.out_of_memory
            assert points.seen["apply", "empty_cache"] == 1
            assert balances(engine.ledger) == held
            counters = card.counters()
            assert counters.reserved_peak > counters.peak
            between = (counters.peak + counters.reserved_peak) // 2
            measured = Measured("a", 1.0, counters.peak, counters.reserved_peak)
            (finding,) = judge(Reference("a", 1.0), measured, Criteria(capacity_bytes=between, reserve_bytes=0))
            assert finding.message.startswith("the reserved peak of ")
            del pieces
            go(engine, resident())  # now the pieces are one
        assert torch.equal(ask(engine, stack, x), expected)
