"""Cases T6 and T8 of a start, the criteria that a user sets, and RUNTIME.md 19 and 20."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from starts import Start, begin_again, return_to_seed, start_again
from stowplan_agent.accelerators.announced import announce
from stowplan_agent.transaction import Faults, Point, Points
from stowplan_agent.weights.ledger import Tier


@pytest.fixture(autouse=True)
def from_the_seed(measured: Start) -> Iterator[None]:
    yield
    return_to_seed(measured)
    measured.startup.prepared.session.engine.commit()


def test_t6_a_reserved_peak_over_the_ceiling_is_rolled_back_whatever_was_allocated(
    measured: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the planned placement the allocator takes more of the card than the tensors in it need."""
    session = measured.startup.prepared.session
    seed, counters = measured.startup.prepared.seed, session.accelerator.counters

    def fragmented() -> Any:
        found = counters()
        return found if session.placement() == seed else replace(found, peak=0, reserved_peak=40 << 20)

    monkeypatch.setattr(session.accelerator, "counters", fragmented)
    started = start_again(measured)
    assert started.phase == "RolledBack"
    (rollback,) = started.status.rollbacks
    assert rollback.reason == "PeakOverBudget"
    assert rollback.message.startswith("the reserved peak of 41 MiB is 1 MiB above the 40 MiB that this")
    assert "allocated peak" not in rollback.message


def test_t8_the_reported_placement_is_what_lies_on_the_device(measured: Start) -> None:
    for faults in ("", "validate.seconds"):
        started = start_again(measured, faults=faults)
        ledger = started.startup.prepared.session.engine.ledger
        assert sum(part.device_bytes for part in started.status.components) == started.weights_on_device()
        for part in started.status.components:
            assert part.device_bytes == ledger.held(part.name, Tier.DEVICE)
            assert part.pinned_bytes == ledger.held(part.name, Tier.PINNED)


@pytest.mark.parametrize(("percent", "phase"), [(0, "RolledBack"), (1000, "Ready")])
def test_how_much_slower_a_request_may_be_is_the_users_to_say(
    measured: Start, monkeypatch: pytest.MonkeyPatch, percent: int, phase: str
) -> None:
    """Twice the reference's seconds: too slow at 0 % and not at 1000 %."""
    session = measured.startup.prepared.session
    seed, elapsed = measured.startup.prepared.seed, session.accelerator.elapsed

    def slow(start: Any, end: Any) -> float:
        seconds: float = elapsed(start, end)
        return seconds if session.placement() == seed else 2 * measured.startup.prepared.reference.seconds

    monkeypatch.setattr(session.accelerator, "elapsed", slow)
    started = start_again(measured, spec={"residency": {"validation": {"maxSlowdownPercent": percent}}})
    assert started.phase == phase
    if phase == "RolledBack":
        assert started.status.rollbacks[0].reason == "TooSlow"


def test_whether_the_output_must_be_the_references_is_the_users_to_say(measured: Start) -> None:
    spec = {"residency": {"validation": {"reproducible": False}}}
    started = start_again(measured, faults="validate.output", spec=spec)
    assert started.phase == "Ready"
    assert started.condition("Validated").message.startswith("not compared bit by bit")
    assert started.status.validation is not None and not started.status.validation.bit_equal


class Peaks(Points):
    """Looks at what is held before every operation."""

    def __init__(self, started: Start) -> None:
        super().__init__()
        self._session = started.startup.prepared.session
        self.device = self.host = 0

    def reach(self, kind: str) -> None:
        super().reach(kind)
        if self._stage == "apply":
            ledger = self._session.engine.ledger
            self.device = max(self.device, ledger.total(Tier.DEVICE))
            self.host = max(self.host, ledger.total(Tier.PINNED) + ledger.total(Tier.PAGEABLE))


def test_runtime_19_no_limit_is_passed_between_two_placements(measured: Start) -> None:
    session, record = measured.startup.prepared.session, measured.startup.prepared.record
    announce(session.accelerator)
    peaks = Peaks(measured)
    _, startup, _ = begin_again(measured, faults=Faults("", peaks))
    before = session.engine.ledger.total(Tier.DEVICE)
    assert startup.run(until="Apply") == "Apply"
    (rank,), (node,) = record.ranks, record.nodes
    assert before <= peaks.device <= session.engine.ledger.total(Tier.DEVICE)
    assert peaks.device + rank.outside_bytes <= rank.capacity_bytes - (1 << 20)
    assert 0 < peaks.host <= node.host_bytes


def test_runtime_20_memory_that_does_not_come_back_after_a_shortage_is_no_ground_for_a_second_try(
    measured: Start,
) -> None:
    session = measured.startup.prepared.session
    announce(session.accelerator)
    kept: list[Any] = []

    class Leak(Points):
        """The first shortage of the validation leaves a tensor behind."""

        def reach(self, kind: str) -> None:
            super().reach(kind)
            if (self._stage, kind) == ("validate", "empty_cache") and not kept:
                with session.accelerator.running():
                    kept.append(torch.zeros(256))

    point = Point.parse("validate:activation.100")
    assert point is not None
    started = start_again(measured, faults=Faults("", Leak((point,))))
    assert len(kept) == 1
    assert started.status.rollbacks[0].reason == "OutOfMemory"
    assert "fault validate:activation.100 was injected" in started.status.rollbacks[0].message
