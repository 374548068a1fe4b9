"""Each single driver call of a move and of a request fails once: nothing is half done, the next request is right."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from stowplan_agent.accelerators.emulated import EmulatedAccelerator, EmulatedCard
from stowplan_agent.weights import Timeline, WeightsEngine
from stowplan_agent.weights.host import HostBuffer
from stowplan_agent.weights.ledger import Tier
from stowplan_agent.weights.timeline import Stretch
from unit.weights.stacks import Stack, balances, check, emulated_card, layerwise, offload, resident

ENTRIES = {
    "resident": resident(),
    "offload": offload(pinned=4000, prefetch=True),
    "streamed": layerwise({"first": 0, "second": 0}, loose="Forward", pinned=3),
    "half": layerwise({"first": 2, "second": 2}, slots=3, pinned=1),
    "forward": layerwise({"first": 2, "second": 3}, lifetime="Forward", policy="Leading", pinned=4),
}


class Faulty(EmulatedAccelerator):
    """A card whose ``fail_at``-th driver call raises; frees never fail, as on a real one."""

    calls = 0
    fail_at = 0

    def allocate(self, nbytes: int) -> torch.Tensor:
        self._count(torch.OutOfMemoryError("out of memory"))
        return super().allocate(nbytes)

    def copy(self, *args: Any, **kwargs: Any) -> Any:
        self._count(RuntimeError("copy failed"))
        return super().copy(*args, **kwargs)

    def read_back(self, *args: Any) -> None:
        self._count(RuntimeError("read back failed"))
        super().read_back(*args)

    def pin(self, buffer: torch.Tensor) -> bool:
        self._count(RuntimeError("pin failed"))
        return super().pin(buffer)

    def _count(self, error: Exception) -> None:
        self.calls += 1
        if self.calls == self.fail_at:
            raise error


def every_failure(card: Faulty, attempt: Callable[[], Any], after: Callable[[], None]) -> int:
    """Fail the first driver call of ``attempt``, then the second, ... until none is left; returns how many."""
    number = 0
    while True:
        number += 1
        card.calls, card.fail_at = 0, number
        try:
            attempt()
        except (torch.OutOfMemoryError, RuntimeError):
            card.fail_at = 0
            after()
        else:
            card.fail_at = 0
            assert card.calls < number, "the failure was swallowed"
            return number - 1


@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("after", ENTRIES)
@pytest.mark.parametrize("before", ENTRIES)
def test_a_move_that_fails_anywhere_is_undone(before: str, after: str, committed: bool) -> None:
    card, stack, x = Faulty(EmulatedCard(1 << 30)), Stack(), torch.rand(2, 16)
    with torch.no_grad():
        expected = stack(x)
        engine = WeightsEngine(card)
        engine.adopt({"part": stack})
        engine.place(ENTRIES[before])
        if committed:
            engine.commit()
        held = balances(engine.ledger)

        def undone() -> None:
            check(engine)
            assert (engine.entry("part"), balances(engine.ledger)) == (ENTRIES[before], held)
            assert torch.equal(stack(x), expected)
            with engine.request():  # what that call left visiting goes
                pass

        failed = every_failure(card, lambda: engine.place(ENTRIES[after]), undone)
        assert failed > 0 or before == after or balances(engine.ledger) == held or after == "offload"
        assert engine.entry("part") == ENTRIES[after]
        assert torch.equal(stack(x), expected)
        engine.close()
    card.close()


PAIRS = [(name, name) for name in ENTRIES] + [(name, "offload") for name in ("streamed", "half", "forward")]
"""The second, where it is Offload, is prefetched: unit by unit while the first streams."""


@pytest.mark.parametrize(("name", "coming"), PAIRS)
def test_a_request_that_fails_anywhere_costs_that_request_only(name: str, coming: str) -> None:
    card, one, two, x = Faulty(EmulatedCard(1 << 30)), Stack(), Stack(), torch.rand(2, 16)
    with torch.no_grad():
        expected = one(x)
        engine = WeightsEngine(card)
        engine.adopt({"one": one, "two": two})
        for part, entry in (("one", name), ("two", coming)):
            engine.place(ENTRIES[entry].model_copy(update={"name": part}))
        engine.timeline = Timeline([Stretch("one", 2, 2), Stretch("two", 1, 1)])
        held = balances(engine.ledger)

        def request() -> None:
            with engine.request():
                for part in (one, one, two):
                    assert torch.equal(part(x), expected)

        def nothing_held() -> None:
            check(engine)
            with engine.request():  # a visitor whose changed buffer could not be read back waits for this
                pass
            assert balances(engine.ledger) == held
            request()

        assert (every_failure(card, request, nothing_held) > 0) is (name != "resident")
        engine.close()
    card.close()


def test_h7_memory_is_flat_over_two_hundred_requests() -> None:
    with emulated_card() as card, torch.no_grad():
        one, two, x = Stack(), Stack(), torch.rand(2, 16)
        engine = WeightsEngine(card)
        engine.adopt({"one": one, "two": two})
        engine.place(ENTRIES["forward"].model_copy(update={"name": "one"}))
        engine.place(ENTRIES["offload"].model_copy(update={"name": "two"}))
        seen = set()
        for number in range(200):
            with engine.request():
                one(x)
                two(x)
            if number in {5, 199}:
                gc.collect()
                buffers = sum(1 for each in gc.get_objects() if type(each) is HostBuffer)
                seen.add((buffers, card.counters().allocated, *balances(engine.ledger).values()))
        assert len(seen) == 1


def test_w3_a_buffer_counts_every_pass_and_keeps_its_count_wherever_it_goes() -> None:
    with emulated_card() as card, torch.no_grad():
        stack, x, engine = Stack(), torch.rand(2, 16), WeightsEngine(card)
        engine.adopt({"part": stack})
        passes = 0
        for entry in ENTRIES.values():
            engine.place(entry)
            for _ in range(3):
                with engine.request():
                    stack(x)
                    passes += 1
                    assert engine.ledger.held("part", Tier.DEVICE) >= stack.first[0].passes.nbytes
                assert [layer.passes.item() for layer in stack.first] == [passes] * 5
            engine.commit()


PROGRAM = """
import sys, torch
from unit.weights.stacks import EmulatedAccelerator, EmulatedCard, Stack, WeightsEngine, layerwise
stack, engine = Stack(), WeightsEngine(EmulatedAccelerator(EmulatedCard(1 << 30)))
engine.adopt({"part": stack})
engine.place(layerwise({"first": 0, "second": 0}, pinned=2))
with engine.request():
    stack(torch.rand(2, 16))
    print("running", flush=True)
    sys.exit(3)
"""


def test_a_process_that_ends_in_the_middle_of_a_request_just_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies on their way, locked memory and a copy thread that nobody closed hold up nothing."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (3, "running\n"), done.stderr
