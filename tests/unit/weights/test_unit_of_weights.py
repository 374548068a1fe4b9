"""One unit between host and device: values, identity and bytes, whatever fails and whatever a model does to buffers."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import nn

from stowplan_agent.accelerators.emulated import EmulatedAccelerator, EmulatedCard
from stowplan_agent.weights.ledger import Ledger
from stowplan_agent.weights.unit import Unit
from unit.weights.stacks import balances, emulated_card, managed, units_of


class Counting(nn.Module):
    """A weight and a buffer that a forward pass may write to."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(6.0).view(2, 3).t())
        self.register_buffer("count", torch.zeros(3))
        self.eval()


def loose(module: nn.Module, card: EmulatedAccelerator, ledger: Ledger) -> Unit:
    return managed(module, card, ledger).loose


def on_device(unit: Unit) -> None:
    unit.load()
    unit.arrive()


def test_tensors_are_views_of_the_device_buffer_there_and_of_the_host_copy_here() -> None:
    with emulated_card() as card, torch.no_grad():
        module, ledger = Counting(), Ledger()
        weight, values = module.weight, module.weight.detach().clone()
        unit = loose(module, card, ledger)
        for _ in range(2):
            on_device(unit)
            assert unit.device is not None and module.weight is weight
            assert weight.untyped_storage().data_ptr() == unit.device.data_ptr()
            assert weight.stride() == values.stride() and torch.equal(weight, values)
            assert balances(ledger) == {"device": 512, "pinned": 0, "pageable": 512}
            unit.release()
            assert torch.equal(weight, values) and weight.stride() == values.stride()
            assert balances(ledger) == {"device": 0, "pinned": 0, "pageable": 512}


def test_a_committed_unit_has_no_host_copy_and_gets_one_back_when_it_leaves() -> None:
    with emulated_card() as card, torch.no_grad():
        module, ledger = Counting(), Ledger()
        unit = loose(module, card, ledger)
        on_device(unit)
        memory = weakref.ref(unit.host.tensor.untyped_storage())
        unit.drop_host_copy()
        gc.collect()
        assert memory() is None, "the host's pages are given back"
        assert balances(ledger) == {"device": 512, "pinned": 0, "pageable": 0}
        module.count.add_(5)
        unit.release()
        assert module.count.tolist() == [5, 5, 5] and torch.equal(module.weight, torch.arange(6.0).view(2, 3).t())
        assert balances(ledger) == {"device": 0, "pinned": 0, "pageable": 512}


def written(buffer: torch.Tensor) -> torch.Tensor:
    buffer.add_(1)
    return buffer


def given(buffer: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    buffer.data = value
    return buffer


CHANGES = {
    "written in place": written,
    "written through a view": lambda buffer: (buffer[1:].mul_(0).add_(4), buffer)[1],
    "written uncounted": lambda buffer: (buffer.data.add_(3), buffer)[1],
    "given other memory": lambda buffer: given(buffer, buffer + 2),
    "given its own memory, turned": lambda buffer: given(buffer, buffer.data[None].expand(3, 3).t()[:, 1]),
    "given memory of another shape": lambda buffer: given(buffer, torch.ones(2, 2)),
    "given another storage": lambda buffer: buffer.set_(torch.rand(3)),
    "assigned": lambda buffer: buffer + 7,
    "assigned in another shape": lambda buffer: torch.ones(2, 2),
    "assigned in another dtype": lambda buffer: buffer.double() + 1,
    "set to none": lambda buffer: None,
}


@pytest.mark.parametrize("where", ["host", "device"])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_buffer_keeps_its_value_wherever_it_goes(change: str, mode: type, where: str) -> None:
    with emulated_card() as card:
        module = Counting()
        unit = loose(module, card, Ledger())
        with torch.no_grad():
            if where == "device":
                on_device(unit)
        with mode():
            module.count = CHANGES[change](module.count)
        expected = None if module.count is None else module.count.clone()
        with torch.no_grad():
            for step in (on_device, Unit.release, on_device, Unit.release):
                step(unit)
                if expected is None:
                    assert module.count is None
                else:
                    assert torch.equal(module.count, expected) and module.count.dtype == expected.dtype


def test_a_tied_buffer_that_is_given_other_memory_stays_tied() -> None:
    with emulated_card() as card, torch.no_grad():
        module = nn.ModuleList([Counting(), Counting()])
        module[1].count = module[0].count
        unit = loose(module, card, Ledger())
        for number, shape in enumerate([(3,), (3,), (2, 2)]):
            on_device(unit)
            module[0].count.data = torch.full(shape, float(number))
            unit.release()
            assert all(torch.equal(part.count, torch.full(shape, float(number))) for part in module)
            assert module[0].count is module[1].count


def test_views_of_one_buffer_come_apart_when_one_is_given_other_memory() -> None:
    with emulated_card() as card, torch.no_grad():
        module = Counting()
        module.register_buffer("part", module.count[1:])
        unit = loose(module, card, Ledger())
        module.part.add_(1)
        for step in (on_device, Unit.release):
            module.part.data = torch.full((2,), 7.0)
            step(unit)
            assert module.count.tolist() == [0, 1, 1] and module.part.tolist() == [7, 7]


def test_a_large_buffer_is_read_back_once_and_then_only_for_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stowplan_agent.weights.buffers.READ_ANYWAY", 0)
    monkeypatch.setattr("stowplan_agent.weights.buffers.COMPARED_AT_ONCE", 8)
    read: list[int] = []

    class Watched(EmulatedAccelerator):
        def read_back(self, destination: torch.Tensor, source: torch.Tensor) -> None:
            read.append(destination.nbytes)
            super().read_back(destination, source)

    with torch.no_grad():
        for uncounted in (False, True):
            card = Watched(EmulatedCard(1 << 20, 0))
            module = Counting()
            unit = loose(module, card, Ledger())
            reads = []
            for visit in range(4):
                read.clear()
                on_device(unit)
                if uncounted:
                    module.count.data.add_(1)
                elif visit == 2:
                    module.count.add_(4)
                unit.release()
                reads.append(read[:])
            assert module.count.tolist() == [4.0] * 3
            assert reads == ([[8, 12], [12], [12], [12]] if uncounted else [[8, 4], [], [12], []])
            card.close()


def test_statistics_that_a_batch_norm_in_training_changes_survive_release() -> None:
    """torch writes them without counting a version."""
    with emulated_card() as card, torch.no_grad():
        norm, twin, x = nn.BatchNorm2d(4), nn.BatchNorm2d(4), torch.rand(2, 4, 3, 3)
        unit = loose(norm, card, Ledger())
        for _ in range(3):
            on_device(unit)
            assert torch.equal(norm(x), twin(x))
            unit.release()
        assert all(torch.equal(value, getattr(twin, name)) for name, value in norm.named_buffers())


def test_a_deleted_buffer_stays_deleted() -> None:
    with emulated_card() as card, torch.no_grad():
        module = Counting()
        unit = loose(module, card, Ledger())
        on_device(unit)
        del module.count
        unit.release()
        assert not hasattr(module, "count")


def test_no_room_changes_nothing() -> None:
    with emulated_card(capacity=511) as card, torch.no_grad():
        module, ledger = Counting(), Ledger()
        unit = loose(module, card, ledger)
        with pytest.raises(torch.OutOfMemoryError):
            unit.load()
        assert unit.device is None and card.counters().weights == 0
        assert balances(ledger) == {"device": 0, "pinned": 0, "pageable": 512}


class Refusing(EmulatedAccelerator):
    """Raises from the driver calls that are named in ``refused``."""

    refused: frozenset[str] = frozenset()

    def copy(self, *args: object, **kwargs: object) -> object:
        return self._unless("copy", super().copy, *args, **kwargs)

    def read_back(self, *args: object) -> None:
        self._unless("read_back", super().read_back, *args)

    def pin(self, *args: object) -> bool:
        return self._unless("pin", super().pin, *args)

    def _unless(self, name: str, call: object, *args: object, **kwargs: object) -> object:
        if name in self.refused:
            raise OSError(f"{name} refused")
        return call(*args, **kwargs)


@pytest.mark.parametrize("refused", ["copy", "read_back", "pin"])
def test_a_refused_driver_call_changes_nothing(refused: str) -> None:
    card, ledger = Refusing(EmulatedCard(1 << 20, 0)), Ledger()
    with torch.no_grad():
        module = Counting()
        unit = loose(module, card, ledger)
        steps = {"copy": unit.load, "read_back": unit.release, "pin": lambda: unit.host.set_pinned(True)}
        if refused == "read_back":
            on_device(unit)
            unit.drop_host_copy()
        before = balances(ledger)
        card.refused = frozenset({refused})
        with pytest.raises(OSError, match="refused"):
            steps[refused]()
        assert balances(ledger) == before and card.counters().weights == before["device"]
        card.refused = frozenset()
        steps[refused]()
        ledger.check(card.counters().weights)
        assert torch.equal(module.weight, torch.arange(6.0).view(2, 3).t())
    card.close()


def test_the_ledger_says_what_is_really_pinned() -> None:
    with emulated_card() as card, torch.no_grad():
        ledger = Ledger()
        (unit,) = units_of([3], card, ledger)
        unit.host.set_pinned(True)
        unit.host.set_pinned(True)
        assert balances(ledger) == {"device": 0, "pinned": 768, "pageable": 0}
        unit.host.set_pinned(False)
        card.refused_pins = True
        unit.host.set_pinned(True)
        assert balances(ledger) == {"device": 0, "pinned": 0, "pageable": 768} and not unit.host.pinned


def test_locked_memory_is_unlocked_when_its_owner_is_forgotten() -> None:
    unlocked: list[int] = []

    class Driver(EmulatedAccelerator):
        def unpin(self, buffer: torch.Tensor) -> None:
            unlocked.append(buffer.nbytes)

    card = Driver(EmulatedCard(1 << 20, 0))
    with torch.no_grad():
        (unit,) = units_of([3], card, Ledger())
        unit.host.set_pinned(True)
        del unit
        gc.collect()
    assert unlocked == [768]
    card.close()
