"""Whatever fails, at whatever moment: the component is where it was, the books agree, and the next request is right."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import torch

from pipelines.tiny_requests import PLACEMENTS, Tiny, ask, balances, load, managed, modules, place_all, run
from stowplan_agent.accelerators.emulated import EmulatedAccelerator, EmulatedCard
from stowplan_agent.weights import WeightsEngine
from stowplan_agent.weights.ledger import Tier

PART = "transformer"


@pytest.fixture(scope="module")
def tiny(tiny_wan: Path) -> Tiny:
    return load(tiny_wan)


class Faulty(EmulatedAccelerator):
    """A card whose ``fail_at``-th driver call raises; ``calls`` counts them. Frees never fail, as on a real one."""

    def __init__(self) -> None:
        super().__init__(EmulatedCard(1 << 30))
        self.calls = 0
        self.fail_at: int | None = None
        self.failed: str | None = None

    def allocate(self, nbytes: int) -> torch.Tensor:
        self._count("allocate", torch.OutOfMemoryError("out of memory"))
        return super().allocate(nbytes)

    def copy(self, *args: Any, **kwargs: Any) -> Any:
        self._count("copy", RuntimeError("copy failed"))
        return super().copy(*args, **kwargs)

    def read_back(self, *args: Any) -> None:
        self._count("read back", RuntimeError("read back failed"))
        super().read_back(*args)

    def pin(self, buffer: torch.Tensor) -> bool:
        self._count("pin", RuntimeError("pin failed"))
        return super().pin(buffer)

    def _count(self, call: str, error: Exception) -> None:
        self.calls += 1
        if self.calls == self.fail_at:
            self.fail_at, self.failed = None, call
            raise error


def digest(module: torch.nn.Module) -> str:
    """Of all values and names, wherever they lie."""
    found = sha256()
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        assert not tensor.is_meta
        found.update(name.encode() + tensor.detach().contiguous().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def failures(card: Faulty, attempt: Callable[[], Any], step: int = 1) -> Iterator[str]:
    """Fail the first driver call of ``attempt``, then the second, ... until it needs no more; yields what failed."""
    number = 1
    while True:
        card.calls, card.fail_at, card.failed = 0, number, None
        if number == 1 or step == 1 or number % step == 0:
            try:
                attempt()
            except (torch.OutOfMemoryError, RuntimeError) as error:
                assert card.failed is not None, error
            else:
                card.fail_at = None
                return
            yield card.failed
        number += 1


MOVES = [
    ("resident", "streamed"),
    ("resident", "offload, half pinned, prefetched"),
    ("streamed", "resident"),
    ("half, forward, strided", "half, leading"),
    ("offload, half pinned, prefetched", "half, leading"),
]


@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize(("before", "after"), MOVES)
def test_a_failure_at_any_driver_call_of_a_move_undoes_all_of_it(
    tiny: Tiny, before: str, after: str, committed: bool
) -> None:
    with managed(tiny.pipe, card := Faulty()) as (engine, _):
        place_all(engine, PLACEMENTS[before])
        if committed:
            engine.commit()
        part = next(part for part in engine.describe() if part.name == PART)
        module = modules(tiny.pipe)[PART]
        bits, entry, bytes_before = digest(module), engine.entry(PART), balances(engine)
        seen = set()
        for failed in failures(card, lambda: engine.place(PLACEMENTS[after](part))):
            seen.add(failed)
            assert engine.entry(PART) == entry
            assert balances(engine) == bytes_before
            engine.ledger.check(card.counters().weights)
            assert digest(module) == bits
        assert seen
        assert engine.entry(PART) == PLACEMENTS[after](part)
        assert digest(module) == bits
        assert torch.equal(ask(tiny.pipe, engine), tiny.reference)


@pytest.mark.parametrize(
    ("name", "step"), [("offload", 13), ("streamed, three slots, nothing held", 41), ("half, leading", 37)]
)
def test_a_failure_at_any_driver_call_of_a_request_costs_that_request_only(tiny: Tiny, name: str, step: int) -> None:
    """Every ``step``-th call here, on the real pipeline; each single one on small modules in tests/unit/weights."""
    with managed(tiny.pipe, card := Faulty()) as (engine, _):
        place_all(engine, PLACEMENTS[name])
        at_rest = balances(engine)
        for _ in failures(card, lambda: ask(tiny.pipe, engine), step):
            assert balances(engine) == at_rest
            engine.ledger.check(card.counters().weights)
        assert torch.equal(ask(tiny.pipe, engine), tiny.reference)


def test_activations_that_do_not_fit_fail_the_request_and_give_everything_back(tiny: Tiny) -> None:
    with managed(tiny.pipe) as (engine, card):
        place_all(engine, PLACEMENTS["half, leading"])
        assert torch.equal(ask(tiny.pipe, engine), tiny.reference)
        at_rest, allocated = balances(engine), card.counters().allocated
        peak = card.counters().peak
        for share in (0.2, 0.9):  # early in the request, and in its largest moment
            room = int((peak - allocated) * share)
            hog = card.allocate(card.capacity_bytes() - card.outside_bytes() - allocated - room)
            with pytest.raises(torch.OutOfMemoryError):
                ask_quietly(tiny.pipe, engine)
            card.free(hog)
            gc.collect()
            assert balances(engine) == at_rest
            assert card.counters().allocated <= allocated
            assert torch.equal(ask(tiny.pipe, engine), tiny.reference)


def ask_quietly(pipe: Any, engine: WeightsEngine) -> None:
    with engine.request():
        run(pipe)


def test_refused_registrations_are_pageable_memory_in_every_account(tiny: Tiny) -> None:
    """H3: nothing is reported as locked that is not, copies are slower, and the bits are the same."""
    with managed(tiny.pipe) as (engine, card):
        place_all(engine, PLACEMENTS["streamed"])
        locked, start = engine.ledger.total(Tier.PINNED), card.record()
        ask(tiny.pipe, engine)
        fast = card.elapsed(start, card.record())
        assert locked > 0
        place_all(engine, PLACEMENTS["offload"])
        card.refused_pins = True
        place_all(engine, PLACEMENTS["streamed"])
        assert engine.ledger.total(Tier.PINNED) == 0
        assert engine.ledger.total(Tier.PAGEABLE) >= locked
        start = card.record()
        assert torch.equal(ask(tiny.pipe, engine), tiny.reference)
        assert card.elapsed(start, card.record()) > fast
