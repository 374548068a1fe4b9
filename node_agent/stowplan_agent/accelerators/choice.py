"""Which accelerator a name stands for, and how the emulated card is described.

An emulated card is described by ``STOWPLAN_EMULATED_*`` variables; see `CARD_FIELDS`. Its capacity is always stated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from stowplan_agent.accelerators.interface import Accelerator
from stowplan_api.quantity import parse_quantity

CARD_FIELDS: Final = {
    "STOWPLAN_EMULATED_PINNED_RATE": "pinned_rate",
    "STOWPLAN_EMULATED_PAGEABLE_RATE": "pageable_rate",
    "STOWPLAN_EMULATED_FLOPS": "flops",
    "STOWPLAN_EMULATED_MEMORY_RATE": "memory_rate",
    "STOWPLAN_EMULATED_PEER_RATE": "peer_rate",
}
"""Environment variable to field of `EmulatedCard`: bytes a second, or floating-point operations a second."""


class AcceleratorError(ValueError):
    """An accelerator that cannot be had. The message is one sentence for a user."""


def open_accelerator(
    name: str, *, index: int = 0, ceiling_bytes: int | None = None, environment: Mapping[str, str] | None = None
) -> Accelerator:
    """The accelerator called ``name`` (``cuda`` or ``emulated``).

    ``index``: which of the GPUs that torch sees; an emulated card is each process's own, whatever its index.
    ``ceiling_bytes`` is the most device memory to use; it is the capacity of an emulated card, and required there.
    Raises `AcceleratorError` for an unknown name, a missing GPU, no GPU of that index, or an emulated card
    without a capacity.
    """
    if name == "cuda":
        from stowplan_agent.accelerators.cuda import CudaAccelerator

        return CudaAccelerator(index, ceiling_bytes=ceiling_bytes)
    if name == "emulated":
        from stowplan_agent.accelerators.emulated import EmulatedAccelerator, EmulatedCard

        if ceiling_bytes is None:
            raise AcceleratorError("the emulated accelerator needs a device memory, such as 48Mi; give one")
        stated: dict[str, Any] = {}
        for variable, field in CARD_FIELDS.items():
            if text := (environment or {}).get(variable):
                try:
                    stated[field] = float(parse_quantity(text))
                except ValueError as error:
                    raise AcceleratorError(f"{variable}: {error}") from None
                if stated[field] <= 0:
                    raise AcceleratorError(f"{variable}: a rate must be above 0")
        return EmulatedAccelerator(replace(EmulatedCard(capacity_bytes=ceiling_bytes), **stated))
    raise AcceleratorError(f"accelerator {name!r} is unknown; choose cuda or emulated")
