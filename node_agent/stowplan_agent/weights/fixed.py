"""Components that the engine cannot move and must not break: they are put on the device once and stay there.

A tensor class that nobody here knows, a module that was compiled as a whole, a network that its pipeline converts in
the middle of a request: its weights cannot be packed into buffers of ours and come back the same. Such a component is
Resident with the reason, in the record and in every refusal of another entry; its bytes are on the ledger like any.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress

import torch

from stowplan_agent.accelerators import Accelerator
from stowplan_agent.weights.component import ManagedComponent
from stowplan_agent.weights.entry import EntryError
from stowplan_agent.weights.layout import Place
from stowplan_agent.weights.ledger import Ledger, Tier
from stowplan_agent.weights.loading.source import ConvertedFrom, has_its_bytes
from stowplan_agent.weights.unit import Unit
from stowplan_api.placement import ComponentPlacement
from stowplan_api.record import Component, Fixed

Modules = dict[torch.nn.Module, str]
"""A component's modules, itself first and each once, and their paths."""


def why_fixed(modules: Modules, places: Mapping[str, Place]) -> str | None:
    """Why a component cannot be moved by us; None where it can."""
    for name, place in places.items():
        tensor = place.tensor
        packable = type(tensor.data) is torch.Tensor and tensor.layout is torch.strided
        if not packable or tensor.is_conj() or tensor.is_neg():
            return f"{name} is a {type(tensor).__name__} ({tensor.layout}), which cannot be packed"
    for inner, path in modules.items():
        # `torch.compile(module)` wraps it; `module.compile()` replaces its call.
        if "_orig_mod" in inner._modules or inner.__dict__.get("_compiled_call_impl") is not None:
            return (
                f"{path or 'it'} was compiled together with what calls it; compile layers one by one instead "
                "(layer.forward = torch.compile(layer.forward))"
            )
    half = any(place.tensor.dtype == torch.float16 for place in places.values())
    if half and getattr(getattr(next(iter(modules)), "config", None), "force_upcast", False):
        return "its pipeline converts it from float16 to float32 and back in every request (force_upcast)"
    return None


class FixedComponent(ManagedComponent):
    """A component of no units."""

    def __init__(
        self,
        name: str,
        module: torch.nn.Module,
        reason: str,
        accelerator: Accelerator,
        ledger: Ledger,
        converted_from: ConvertedFrom = has_its_bytes,
    ) -> None:
        """Nothing is moved yet."""
        super().__init__(name, module, Unit(name, (), accelerator, ledger), {}, accelerator, ledger)
        self.reason = reason
        self._converted_from = converted_from
        self._nbytes = sum(_storages(module).values())

    def describe(self) -> Component:
        """All of it loose, and fixed."""
        # A record's reason has a limit; a reason here has the name of a class in it, which has none.
        fixed = Fixed(mode="Resident", reason=self.reason[:1024])
        return Component(name=self.name, loose_bytes=self._nbytes, groups=(), fixed=fixed)

    def place(self, entry: ComponentPlacement, rank: int) -> None:
        """To the device, once. Raises torch.OutOfMemoryError, and `EntryError` for another mode or what cannot move."""
        if entry.mode != "Resident":
            raise EntryError(f"component {self.name} can only be Resident, not {entry.mode}: {self.reason}")
        if self.entry is None:
            self._accelerator.hold(self._nbytes)
            try:
                for tensor in [*self.module.parameters(), *self.module.buffers()]:
                    _convert(tensor, self._converted_from)
                self.module.to(self._accelerator.device)
            except BaseException as error:
                with suppress(Exception):  # what cannot move has not moved
                    self.module.to("cpu")
                self._accelerator.let_go(self._nbytes)
                if isinstance(error, torch.OutOfMemoryError) or not isinstance(error, Exception):
                    raise
                raise EntryError(
                    f"component {self.name} cannot be put on the device ({error}), and nothing else can be done with "
                    f"it: {self.reason}; load it in plain tensors"
                ) from error
            self._ledger.take(self.name, Tier.DEVICE, self._nbytes)
        self.entry = entry

    def recount(self) -> None:
        """After tensors were added or taken away, where the others are. Raises torch.OutOfMemoryError, uncounted."""
        nbytes = sum(_storages(self.module).values())
        grown = nbytes - self._nbytes if self.entry is not None else 0
        if grown > 0:
            self._accelerator.hold(grown)
            self._ledger.take(self.name, Tier.DEVICE, grown)
        elif grown < 0:
            self._accelerator.let_go(-grown)
            self._ledger.give_back(self.name, Tier.DEVICE, -grown)
        self._nbytes = nbytes

    def disown(self) -> None:
        """It stays where it is, and is nobody's."""
        if self.entry is not None:
            self._accelerator.let_go(self._nbytes)
            self._ledger.give_back(self.name, Tier.DEVICE, self._nbytes)
            self.entry = None


def _convert(tensor: torch.Tensor, converted_from: ConvertedFrom) -> None:
    """Make a conversion that was put off, whatever class of tensor has it."""
    for inner in _plain(tensor):
        values = converted_from(inner.untyped_storage())
        if values is not None:
            torch.empty(0, dtype=inner.dtype, device="cpu").set_(inner.untyped_storage(), 0, values.shape, (1,)).copy_(
                values
            )


def _storages(module: torch.nn.Module) -> dict[int, int]:
    """Bytes of every storage under a module's tensors, by identity; of a tensor that wraps others, theirs."""
    found: dict[int, int] = {}
    for tensor in [*module.parameters(), *module.buffers()]:
        for inner in _plain(tensor):
            storage = inner.untyped_storage()
            # What a storage has beyond its tensors (a whole file's, say) does not move with them.
            found[storage._cdata] = min(storage.nbytes(), found.get(storage._cdata, 0) + inner.nbytes)
    return found


def _plain(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    if type(tensor.data) is not torch.Tensor and hasattr(tensor, "__tensor_flatten__"):
        names, _ = tensor.__tensor_flatten__()
        for name in names:
            yield from _plain(getattr(tensor, name))
    elif tensor.layout is torch.strided:
        yield tensor
    else:
        yield torch.empty(tensor.numel() * tensor.element_size(), dtype=torch.uint8, device="cpu")
