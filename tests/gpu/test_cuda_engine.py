"""The engine over a real GPU, with small modules: same bits in every placement, memory told apart, failures undone.

Needs torch with CUDA and nothing else. Run by hand: ``pytest -m gpu tests/gpu``.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import torch

from stowplan_agent.accelerators.cuda import CudaAccelerator
from stowplan_agent.weights import Timeline, WeightsEngine
from stowplan_agent.weights.ledger import Tier
from stowplan_agent.weights.timeline import Stretch
from stowplan_api.placement import ComponentPlacement
from unit.weights.stacks import Stack, balances, check, layerwise, offload, resident

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU is visible to torch"),
]

WIDTH = 1024  # layers of 4 and 16 MiB: copies and compute are long enough to overlap
MIB = 1 << 20

ENTRIES: dict[str, ComponentPlacement] = {
    "resident": resident(),
    "offload": offload(),
    "offload, pinned": offload(pinned=40 * MIB),
    "streamed": layerwise({"first": 0, "second": 0}, pinned=4),
    "streamed, pageable": layerwise({"first": 0, "second": 0}, loose="Forward"),
    "half": layerwise({"first": 2, "second": 2}, slots=3, pinned=2),
    "forward": layerwise({"first": 2, "second": 3}, lifetime="Forward", policy="Leading", loose="Forward", pinned=4),
    "every layer": layerwise({"first": 5, "second": 4}),
}


@pytest.fixture(scope="module")
def card() -> Iterator[CudaAccelerator]:
    accelerator = CudaAccelerator()
    yield accelerator
    accelerator.close()


@pytest.fixture
def stack() -> Stack:
    return Stack(width=WIDTH)


@pytest.fixture
def x(card: CudaAccelerator) -> torch.Tensor:
    return torch.rand(4096, WIDTH, generator=torch.Generator().manual_seed(3)).to(card.device)


@pytest.fixture
def expected(card: CudaAccelerator, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return Stack(width=WIDTH).to(card.device)(x).clone()


@pytest.fixture
def engine(card: CudaAccelerator, stack: Stack) -> Iterator[WeightsEngine]:
    found = WeightsEngine(card)
    found.adopt({"part": stack})
    yield found
    found.close()
    found.place(offload())
    check(found)


def ask(engine: WeightsEngine, stack: Stack, x: torch.Tensor, passes: int = 6) -> torch.Tensor:
    with torch.no_grad(), engine.request():
        for _ in range(passes):
            output = stack(x)
    check(engine)
    return output


@pytest.mark.parametrize("known", [False, True])
def test_same_bits_in_every_placement(
    engine: WeightsEngine, stack: Stack, x: torch.Tensor, expected: torch.Tensor, known: bool
) -> None:
    engine.timeline = Timeline([Stretch("part", 6, 6)] if known else ())
    for name, entry in [*ENTRIES.items(), *reversed(ENTRIES.items())]:
        engine.place(entry)
        at_rest = balances(engine.ledger)
        assert torch.equal(ask(engine, stack, x), expected), name
        assert balances(engine.ledger) == at_rest
    engine.commit()
    assert balances(engine.ledger)["pageable"] == balances(engine.ledger)["pinned"] == 0
    assert torch.equal(ask(engine, stack, x), expected)


def test_inputs_on_the_host_reach_the_device(
    engine: WeightsEngine, stack: Stack, x: torch.Tensor, expected: torch.Tensor
) -> None:
    """W8: neither the first parameter's place nor the input's decides where compute runs."""
    for entry in ENTRIES.values():
        engine.place(entry)
        output = ask(engine, stack, x.cpu(), passes=1)
        assert output.device == x.device and torch.equal(output, expected)


@pytest.mark.parametrize("lag", [0, 2_000_000])
def test_late_compute_never_meets_a_refilled_slot(
    engine: WeightsEngine, stack: Stack, x: torch.Tensor, expected: torch.Tensor, lag: int
) -> None:
    """W2: the device lags behind the host; copies that finish at once must still wait for the compute before them."""
    for part in [*stack.first, *stack.second]:
        part.register_forward_pre_hook(lambda *_: torch.cuda._sleep(lag) if lag else None)
    for name in ("streamed", "half", "forward"):
        engine.place(ENTRIES[name])
        assert torch.equal(ask(engine, stack, x, passes=20), expected)


def test_layers_out_of_order_and_after_an_exception(
    engine: WeightsEngine, stack: Stack, x: torch.Tensor, expected: torch.Tensor
) -> None:
    for name in ("streamed", "half", "forward"):
        engine.place(ENTRIES[name])
        at_rest = balances(engine.ledger)
        usual = stack.order
        stack.order = [usual[3], usual[1], usual[1], usual[5], usual[9], ("missing", 0)]
        with pytest.raises(AttributeError, match="missing"):
            ask(engine, stack, x, passes=1)
        stack.order = usual
        assert balances(engine.ledger) == at_rest
        assert torch.equal(ask(engine, stack, x), expected)


def test_peaks_of_activations_do_not_depend_on_the_placement(
    engine: WeightsEngine, card: CudaAccelerator, stack: Stack, x: torch.Tensor
) -> None:
    peaks = {}
    for name, entry in ENTRIES.items():
        engine.place(entry)
        ask(engine, stack, x)
        card.reset_peaks()
        before = card.counters()
        ask(engine, stack, x)
        counters = card.counters()
        peaks[name] = counters.activation_peak
        assert counters.weights == before.weights == engine.ledger.total(Tier.DEVICE)
        assert counters.peak <= counters.reserved_peak
        assert counters.peak >= counters.activation_peak + counters.weights
    # The allocator rounds to 512 bytes, and to 2 MiB for what it cannot split off a larger block.
    assert max(peaks.values()) - min(peaks.values()) <= 2 * MIB, peaks


def test_taking_and_giving_back_weights_is_no_activation(card: CudaAccelerator) -> None:
    card.reset_peaks()
    start = card.counters()
    buffers = [card.allocate(nbytes) for nbytes in (8 * MIB, 300 * 256, 256)]
    assert card.counters().weights == start.weights + 8 * MIB + 301 * 256
    for buffer in buffers:
        card.free(buffer)
    counters = card.counters()
    assert (counters.weights, counters.allocated) == (start.weights, start.allocated)
    assert counters.activation_peak == start.activation_peak
    assert counters.peak >= start.peak + 8 * MIB


def test_a_pin_that_fails_leaves_no_error_behind(engine: WeightsEngine, stack: Stack, x: torch.Tensor) -> None:
    """H3: the driver refuses to register memory twice and keeps an error pending; the next call must not inherit it."""
    card = engine.accelerator
    unit = engine._components["part"].groups["first"][0]
    assert unit.host is not None
    assert card.pin(unit.host.tensor)
    assert not card.pin(unit.host.tensor)
    assert (torch.ones(4, device=card.device) + 1).sum().item() == 8
    unit.host.set_pinned(True)  # refused: it is registered, but not by this buffer
    assert not unit.host.pinned and engine.ledger.total(Tier.PINNED) == 0
    card.unpin(unit.host.tensor)
    card.unpin(unit.host.tensor)
    assert (torch.ones(4, device=card.device) + 1).sum().item() == 8
    engine.place(ENTRIES["streamed"])
    assert engine.ledger.total(Tier.PINNED) > 0
    assert torch.isfinite(ask(engine, stack, x)).all()


def test_out_of_memory_is_undone_and_the_next_request_works(
    engine: WeightsEngine, stack: Stack, x: torch.Tensor, expected: torch.Tensor
) -> None:
    card = engine.accelerator
    torch.cuda.empty_cache()
    total = card.capacity_bytes()
    allowed = torch.cuda.memory_reserved() + 48 * MIB  # less than the weights of all layers, about 85 MiB
    engine.place(ENTRIES["offload"])
    before = balances(engine.ledger)
    torch.cuda.set_per_process_memory_fraction(allowed / total)
    try:
        with pytest.raises(torch.OutOfMemoryError):
            engine.place(ENTRIES["resident"])
        assert (balances(engine.ledger), engine.entry("part")) == (before, ENTRIES["offload"])
        with pytest.raises(torch.OutOfMemoryError):
            ask(engine, stack, x)
        assert balances(engine.ledger) == before
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    gc.collect()
    check(engine)
    assert card.counters().weights == 0
    for name in ("streamed", "resident"):
        engine.place(ENTRIES[name])
        assert torch.equal(ask(engine, stack, x), expected)


def test_a_ceiling_covers_what_is_outside_the_allocator() -> None:
    total = torch.cuda.get_device_properties(0).total_memory
    gc.collect()
    torch.cuda.empty_cache()
    ceiling = CudaAccelerator().outside_bytes() + torch.cuda.memory_reserved() + 256 * MIB
    limited = CudaAccelerator(ceiling_bytes=ceiling)
    try:
        assert limited.capacity_bytes() == ceiling < total
        with pytest.raises(torch.OutOfMemoryError):
            limited.allocate(300 * MIB)
        limited.free(limited.allocate(64 * MIB))
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def test_a_steady_pass_waits_for_nothing_on_the_host(
    engine: WeightsEngine, card: CudaAccelerator, stack: Stack, x: torch.Tensor
) -> None:
    """No allocator traffic and no synchronisation while layers stream from pinned memory."""
    engine.place(layerwise({"first": 0, "second": 0}, pinned=4))
    unit = engine._components["part"].groups["first"][4]
    assert unit.host is not None
    unit.host.set_pinned(True)
    with torch.no_grad(), engine.request():
        stack(x)
        torch.cuda.synchronize()
        taken = torch.cuda.memory_stats()["allocation.all.allocated"]
        torch.cuda.set_sync_debug_mode("error")
        try:
            stack(x)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        streamed = torch.cuda.memory_stats()["allocation.all.allocated"] - taken
    engine.place(ENTRIES["resident"])
    with torch.no_grad(), engine.request():
        stack(x)
        taken = torch.cuda.memory_stats()["allocation.all.allocated"]
        stack(x)
        assert streamed == torch.cuda.memory_stats()["allocation.all.allocated"] - taken
