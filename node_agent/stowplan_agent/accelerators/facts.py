"""What the driver says of a card: its name and number, its memory, its place on the bus. NVML, through `pynvml`.

CUDA_VISIBLE_DEVICES renumbers the cards for CUDA and not for NVML, so a card is found by its UUID, or by its PCI
address, never by its index. Facts are for people and for records: where NVML is missing or refuses one, it is None, and
nothing depends on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from stowplan_api.quantity import for_people


@dataclass(frozen=True)
class DeviceFacts:
    """One card, or one MIG instance. Bytes, and PCIe generations and lanes; None where the driver does not say."""

    product: str | None = None
    uuid: str | None = None
    driver: str | None = None
    memory_bytes: int | None = None
    used_bytes: int | None = None
    """By all processes on the card. An accelerator's own facts are of before it held anything."""
    pcie_generation: int | None = None
    """Now: an idle card may have stepped down."""
    pcie_generation_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None

    def __str__(self) -> str:
        """For a line of text: ``NVIDIA L4 of 22.5 GiB, PCIe 4.0 x8 of x16, driver 570.86.10`` and the like."""
        card = self.product or "unknown card"
        if self.memory_bytes is not None:
            card += f" of {for_people(self.memory_bytes)}"
        parts = [card, self._link(), self.driver and f"driver {self.driver}"]
        return ", ".join(part for part in parts if part)

    def _link(self) -> str | None:
        if self.pcie_generation_max is None or self.pcie_width is None:
            return None
        # The lanes are what a slot or a riser takes away for good; the generation rises with load.
        narrowed = self.pcie_width_max is not None and self.pcie_width < self.pcie_width_max
        most = f" of x{self.pcie_width_max}" if narrowed else ""
        return f"PCIe {self.pcie_generation_max}.0 x{self.pcie_width}{most}"


def read_facts(uuid: str | None, pci_bus_id: str | None = None, *, nvml: Any = None) -> DeviceFacts | None:
    """The card with this UUID (with or without ``GPU-`` or ``MIG-``), else the one at this PCI address.

    ``nvml`` is a module like `pynvml`, which is the default. None where there is no NVML, or it knows no such card;
    never raises.
    """
    nvml = nvml or _pynvml()
    if nvml is None:
        return None
    with suppress(Exception), _session(nvml):
        handle = _find(nvml, uuid, pci_bus_id)
        if handle is None:
            return None
        memory = _ask(nvml, "nvmlDeviceGetMemoryInfo", handle, getattr(nvml, "nvmlMemory_v2", None))
        if memory is None:  # an old driver, whose ``used`` includes what it keeps for itself
            memory = _ask(nvml, "nvmlDeviceGetMemoryInfo", handle)
        return DeviceFacts(
            product=_text(_ask(nvml, "nvmlDeviceGetName", handle)),
            uuid=_text(_ask(nvml, "nvmlDeviceGetUUID", handle)),
            driver=_text(_ask(nvml, "nvmlSystemGetDriverVersion")),
            memory_bytes=None if memory is None else int(memory.total),
            used_bytes=None if memory is None else int(memory.used),
            pcie_generation=_ask(nvml, "nvmlDeviceGetCurrPcieLinkGeneration", handle),
            pcie_generation_max=_ask(nvml, "nvmlDeviceGetMaxPcieLinkGeneration", handle),
            pcie_width=_ask(nvml, "nvmlDeviceGetCurrPcieLinkWidth", handle),
            pcie_width_max=_ask(nvml, "nvmlDeviceGetMaxPcieLinkWidth", handle),
        )
    return None


def cuda_facts(properties: Any, *, nvml: Any = None) -> DeviceFacts | None:
    """The facts of a CUDA device, from what `torch.cuda.get_device_properties` says of it."""
    uuid = getattr(properties, "uuid", None)
    address = [getattr(properties, f"pci_{part}_id", None) for part in ("domain", "bus", "device")]
    known = [number for number in address if number is not None]
    bus_id = "{:08x}:{:02x}:{:02x}.0".format(*known) if len(known) == len(address) else None
    return read_facts(None if uuid is None else str(uuid), bus_id, nvml=nvml)


def _pynvml() -> Any:
    with suppress(ImportError):
        return import_module("pynvml")
    return None


@contextmanager
def _session(nvml: Any) -> Iterator[None]:
    nvml.nvmlInit()
    try:
        yield
    finally:
        nvml.nvmlShutdown()


def _find(nvml: Any, uuid: str | None, pci_bus_id: str | None) -> Any:
    if uuid:
        bare = uuid.removeprefix("GPU-").removeprefix("MIG-")
        for prefix in ("GPU-", "MIG-"):
            if (handle := _ask(nvml, "nvmlDeviceGetHandleByUUID", prefix + bare)) is not None:
                return handle
    return _ask(nvml, "nvmlDeviceGetHandleByPciBusId", pci_bus_id) if pci_bus_id else None


def _ask(nvml: Any, question: str, *about: Any) -> Any:
    """The answer, or None: NVML has an error of its own for each thing that a card, driver or container withholds."""
    with suppress(Exception):
        return getattr(nvml, question)(*about)
    return None


def _text(value: str | bytes | None) -> str | None:
    return value.decode() if isinstance(value, bytes) else value
