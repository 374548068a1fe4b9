"""A rewrite that fails, wherever it does, is not there: modules, weights and bytes are those of before."""

from __future__ import annotations

import pytest
import torch

from stowplan_agent.weights import RewriteError, WeightsEngine
from stowplan_agent.weights.ledger import Tier
from unit.weights.stacks import (
    EmulatedCard,
    Stack,
    balances,
    check,
    emulated_card,
    engine_of,
    resident,
)
from unit.weights.test_failures import ENTRIES, Faulty, every_failure
from unit.weights.tuners import fuse, load, tuners, unfuse, unload
from unit.weights.twins import STEPS, aligned_twin, ask, digest, sizes


@pytest.fixture
def x() -> torch.Tensor:
    return torch.rand(3, 16, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("step", ["load", "fuse", "unfuse", "fuse into other memory", "unload"])
@pytest.mark.parametrize("name", ENTRIES)
def test_a_rewrite_that_fails_anywhere_is_undone(name: str, step: str, x: torch.Tensor) -> None:
    card, stack = Faulty(EmulatedCard(1 << 30)), Stack()
    with torch.no_grad():
        engine = WeightsEngine(card)
        engine.adopt({"part": stack})
        engine.place(ENTRIES[name])
        if step != "load":
            with engine.rewriting():
                load(stack)
        if step == "unfuse":
            with engine.rewriting():
                fuse(stack)
        engine.commit()
        bits, held, described = digest(stack), balances(engine.ledger), engine.describe()
        entry, names = engine.entry("part"), [name for name, _ in stack.named_modules()]
        merged = [list(tuner.merged_adapters) for tuner in tuners(stack)]

        def attempt() -> None:
            with engine.rewriting():
                STEPS[step](stack)

        def undone() -> None:
            check(engine)
            assert digest(stack) == bits
            assert (balances(engine.ledger), engine.describe(), engine.entry("part")) == (held, described, entry)
            assert [name for name, _ in stack.named_modules()] == names
            assert [list(tuner.merged_adapters) for tuner in tuners(stack)] == merged
            assert not any(
                method in vars(module) for module in stack.modules() for method in ("merge", "unmerge", "to")
            )

        failed = every_failure(card, attempt, undone)
        assert failed > 0 or step in {"load", "unload"}
        twin = aligned_twin()
        for change in {"load": [load], "unload": [load, unload], "unfuse": [load, fuse, unfuse]}.get(
            step, [load, STEPS[step]]
        ):
            change(twin)
        assert torch.equal(ask(engine, stack, x), twin(x))
        engine.close()
    card.close()


@pytest.mark.parametrize("name", ENTRIES)
def test_an_exception_inside_a_rewrite_undoes_it_and_goes_on(name: str, x: torch.Tensor) -> None:
    with emulated_card() as card, torch.no_grad():
        stack, engine = Stack(), WeightsEngine(card)
        engine.adopt({"part": stack})
        engine.place(ENTRIES[name])
        with engine.rewriting():
            load(stack, layers=3)
        bits, described = digest(stack), engine.describe()
        for change in (
            lambda: fuse(stack),
            lambda: unload(stack),
            lambda: (fuse(stack), unload(stack))[0],
        ):
            with pytest.raises(KeyboardInterrupt), engine.rewriting():
                change()
                raise KeyboardInterrupt
            check(engine)
            for layer in [*stack.first, *stack.second]:
                layer.passes.zero_()
            assert (digest(stack), engine.describe()) == (bits, described)
        twin = aligned_twin()
        load(twin, layers=3)
        assert torch.equal(ask(engine, stack, x), twin(x))
        engine.close()


@pytest.mark.parametrize("name", ENTRIES)
@pytest.mark.parametrize("step", ["load", "fuse"])
def test_h11_too_little_host_memory_is_refused_with_numbers(name: str, step: str) -> None:
    with emulated_card() as card, torch.no_grad():
        stack, engine = Stack(), WeightsEngine(card)
        engine.adopt({"part": stack})
        engine.place(ENTRIES[name])
        if step == "fuse":
            with engine.rewriting():
                load(stack)
        engine.commit()
        bits, held, described = digest(stack), balances(engine.ledger), engine.describe()
        largest = max(size for group in sizes(engine) for size in group)
        for headroom in (0, largest - 1):
            with (
                pytest.raises(RewriteError, match=rf"component part: .* {headroom} bytes .* give the pod more memory"),
                engine.rewriting(headroom),
            ):
                STEPS[step](stack)
            check(engine)
            assert (digest(stack), balances(engine.ledger), engine.describe()) == (bits, held, described)
            assert not any(tuner.merged for tuner in tuners(stack))
        most = 0
        with engine.rewriting(10 * sum(map(sum, sizes(engine)))):
            STEPS[step](stack)
            most = engine.ledger.total(Tier.PAGEABLE) + engine.ledger.total(Tier.PINNED)
        check(engine)
        if step == "fuse":  # the old bytes of what has changed were in the ledger
            assert most > held["pinned"] + held["pageable"]
        engine.close()


def test_nothing_runs_moves_or_is_rewritten_inside_a_rewrite() -> None:
    """Weights on the bench would come back from wherever a run or a move has put them."""
    with engine_of("half") as found, torch.no_grad():
        engine, stack = found.engine, found.stacks["part"]
        with engine.rewriting():
            load(stack)
        bits = digest(stack)

        def rewritten() -> None:
            with engine.rewriting():
                pass

        def asked() -> None:
            with engine.request():
                pass

        for attempt in (
            lambda: stack(found.x), lambda: engine.place(resident()), engine.commit, engine.close, asked, rewritten
        ):  # fmt: skip
            with engine.rewriting():
                fuse(stack)
                with pytest.raises(RewriteError, match="end that before"):
                    attempt()
            fused = digest(stack)
            assert fused != bits
            with engine.rewriting():
                unfuse(stack)
            bits = digest(stack)
