"""Random passes through the weights engine: whatever the schedule, the placement and the speeds, the bits are the same.

One function for every accelerator. A model of two stacks of layers runs ``passes`` times; each pass draws which layers
run and in which order (skipped, repeated, backwards, straight), every few passes each component goes to a random
placement, and now and then a pass breaks off or the host copies are given back. A twin that nobody manages runs the
same schedule, and every output must equal the twin's bit for bit.

Memory is judged besides. While nothing runs, the ledger agrees with the card, and two visits of one placement find the
same balances and the same host buffers. Resident memory of the process may not grow: see `RSS_SLACK`.
"""

from __future__ import annotations

import gc
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch

from stowplan_agent.accelerators import Accelerator
from stowplan_agent.weights import Timeline, WeightsEngine
from stowplan_agent.weights.host import HostBuffer
from stowplan_agent.weights.ledger import Tier
from stowplan_agent.weights.timeline import Stretch
from stowplan_api.placement import ComponentPlacement, GroupPlacement
from unit.weights.stacks import Stack

RSS_SLACK = 6 << 20
"""Bytes by which the process may have grown between the end of the first quarter and the end.

Measured: 0.1 to 1.9 MiB without a leak (malloc keeps freed small allocations in its arenas, and the kernel counts pages
in batches of 64 a thread), 8 MiB where the host copies that commits drop are kept alive, which is the least that the
engine could leak: layers are 64 and 256 KiB at the default width, and a dozen of 200 passes are followed by a commit.
With larger layers a driver may take a few MiB of its own (8 MiB seen on a GPU), and a leak is of that many of them.
"""
LEAKED_LAYERS = 8
"""Smallest layers that the process may have grown by, where that is more: fewer than one leaking commit keeps alive."""


@dataclass
class Tally:
    """What a run of `fuzz` did, for a test to print or to check that it was worth its name."""

    passes: int = 0
    placements: int = 0
    interrupted: int = 0
    commits: int = 0
    streamed_bytes: int = 0
    grown_bytes: int = 0
    seen: dict[str, set[tuple[int, ...]]] = field(default_factory=dict)
    """By placement: balances and host buffers found at rest."""


class BrokenOffError(Exception):
    """Raised inside a layer, to break a pass off."""


def fuzz(
    accelerator: Accelerator,
    *,
    seed: int,
    passes: int = 200,
    width: int = 128,
    slow_compute: Callable[[random.Random], None] = lambda generator: None,
) -> Tally:
    """Run ``passes`` random passes. ``slow_compute`` is called in front of each layer; slow copies are the caller's.

    Raises AssertionError where a bit differs or memory is not flat, and whatever the engine raises.
    """
    generator = random.Random(seed)
    stacks = {name: Stack(width=width) for name in ("one", "two")}
    twins = {name: Stack(width=width).to(accelerator.device) for name in stacks}
    x = torch.rand(3, width, generator=torch.Generator().manual_seed(seed)).to(accelerator.device)
    engine, tally, grown_from = WeightsEngine(accelerator), Tally(), 0
    with torch.no_grad():
        engine.adopt(stacks)
        for stack in stacks.values():
            for layer in [*stack.first, *stack.second]:
                layer.register_forward_pre_hook(lambda *_: slow_compute(generator))
        with engine.request():  # torch imports some of itself at first use
            stacks["one"](x), twins["one"](x)
        gc.collect()
        gc.freeze()  # what was here before is not looked at again: a full collection takes a tenth of a second
        while tally.passes < passes:
            if not tally.placements or generator.random() < 0.4:
                _place(engine, generator, tally)
            name = generator.choice(list(stacks))
            calls = generator.randint(1, 2)
            engine.timeline = Timeline([Stretch(name, calls, calls)] if generator.random() < 0.5 else ())
            with engine.request():
                for _ in range(calls):
                    _one_pass(stacks[name], twins[name], x, generator, tally)
            _check_at_rest(engine, tally)
            if not grown_from and tally.passes >= passes // 4:
                grown_from = resident_bytes()
        tally.streamed_bytes = engine.ledger.streamed_bytes
        tally.grown_bytes = resident_bytes() - grown_from
        slack = max(RSS_SLACK, LEAKED_LAYERS * 4 * width * width)
        assert tally.grown_bytes <= slack, f"the process grew by {tally.grown_bytes} bytes"
        engine.close()
    gc.unfreeze()
    return tally


def _one_pass(stack: Stack, twin: Stack, x: torch.Tensor, generator: random.Random, tally: Tally) -> None:
    tally.passes += 1
    stack.order = twin.order = schedule(generator, len(stack.first), len(stack.second))
    if generator.random() < 0.1:
        breaking = generator.choice([*stack.first, *stack.second])
        handle = breaking.linear.register_forward_pre_hook(_break)
        try:
            stack(x)
        except BrokenOffError:
            tally.interrupted += 1
        finally:
            handle.remove()
        # Layers that did run have counted; the twin must know.
        for (_, own), (_, other) in zip(stack.named_buffers(), twin.named_buffers(), strict=True):
            other.copy_(own)
        return
    output, expected = stack(x), twin(x)
    assert torch.equal(output, expected), f"pass {tally.passes}: {stack.order}"
    for (name, own), (_, other) in zip(stack.named_buffers(), twin.named_buffers(), strict=True):
        assert torch.equal(own.to(other.device), other), f"pass {tally.passes}: buffer {name}"


def _break(*_: object) -> None:
    raise BrokenOffError


def schedule(generator: random.Random, first: int, second: int) -> list[tuple[str, int]]:
    """Which layers of two stacks run, in order: straight half of the time, else any of them in any order."""

    def drawn(count: int) -> list[int]:
        straight = list(range(count))
        return straight if generator.random() < 0.5 else generator.choices(straight, k=generator.randint(0, 2 * count))

    before = [("first", index) for index in drawn(first)]
    return [*before, ("widen", 0), *(("second", index) for index in drawn(second))]


def _place(engine: WeightsEngine, generator: random.Random, tally: Tally) -> None:
    for part in engine.describe():
        layers = {group.name: len(group.layer_bytes) for group in part.groups}
        engine.place(random_entry(generator, part.name, layers, part.total_bytes()))
        tally.placements += 1
    if generator.random() < 0.3:
        engine.commit()
        tally.commits += 1


def random_entry(generator: random.Random, name: str, layers: dict[str, int], nbytes: int) -> ComponentPlacement:
    """Any entry that a component with these groups (name to number of layers) and bytes can have."""
    mode = generator.choice(["Resident", "Offload", *(["Layerwise"] * 3 if layers else [])])
    if mode == "Resident":
        return ComponentPlacement(name=name, mode="Resident")
    if mode == "Offload":
        pinned = generator.choice([0, nbytes // 2, nbytes])
        return ComponentPlacement(
            name=name, mode="Offload", pinned_bytes=(pinned,), prefetch=generator.random() < 0.5 or None
        )
    groups = []
    for group, count in layers.items():
        resident, lifetime = generator.randint(0, count), generator.choice(["Permanent", "Forward"])
        keeping = count if lifetime == "Forward" else count - resident
        groups.append(
            GroupPlacement(
                name=group,
                resident_layers=resident,
                policy=generator.choice(["Strided", "Leading"]),
                lifetime=lifetime,
                slots=generator.choice([2, 3]),
                pinned_layers=(generator.randint(0, keeping),),
            )
        )
    loose = generator.choice(["Permanent", "Forward"])
    return ComponentPlacement(name=name, mode="Layerwise", loose_lifetime=loose, groups=tuple(groups))


def _check_at_rest(engine: WeightsEngine, tally: Tally) -> None:
    engine.ledger.check(engine.accelerator.counters().weights)
    balances = tuple(engine.ledger.held(part.name, tier) for part in engine.describe() for tier in Tier)
    assert min(balances) >= 0, balances
    placement = "; ".join(engine.entry(part.name).model_dump_json() for part in engine.describe())
    committed = f"{placement}; {tally.commits} commits"
    found = tally.seen.setdefault(committed, set())
    found.add((*balances, live_host_buffers()))
    assert len(found) == 1, f"memory is not flat while {placement}: {found}"


def live_host_buffers() -> int:
    """Host copies that anything still refers to."""
    gc.collect()
    return sum(1 for each in gc.get_objects() if type(each) is HostBuffer)


def resident_bytes() -> int:
    """Resident memory of this process, from the kernel's own account."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
