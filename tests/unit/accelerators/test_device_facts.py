"""What NVML says of a card, and what is left when it says little: found by UUID or address, never by index."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from stowplan_agent.accelerators.facts import DeviceFacts, cuda_facts, read_facts

GIB = 1 << 30
UUID = "3c6f1a2e-0000-4444-8888-0123456789ab"
ADDRESS = "00000000:3b:00.0"


class NVMLError(Exception):
    pass


@dataclass
class Nvml:
    """The functions of pynvml that are used, over two cards; ``silent`` names those that the driver refuses."""

    silent: set[str] = field(default_factory=set)
    prefix: str = "GPU-"
    bytes_for_text: bool = False
    open: int = 0
    nvmlMemory_v2: int = 2  # noqa: N815

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvmlDevice") or name.startswith("nvmlSystem") or name == "nvmlInit":

            def call(*arguments: Any) -> Any:
                if name in self.silent:
                    raise NVMLError(f"{name}: not supported")
                assert self.open == (name != "nvmlInit")
                return object.__getattribute__(self, name)(*arguments)

            return call
        return object.__getattribute__(self, name)

    def nvmlInit(self) -> None:  # noqa: N802
        self.open += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.open -= 1

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:  # noqa: N802
        if uuid != self.prefix + UUID:
            raise NVMLError("not found")
        return 1

    def nvmlDeviceGetHandleByPciBusId(self, address: str) -> int:  # noqa: N802
        if address != ADDRESS:
            raise NVMLError("not found")
        return 1

    def nvmlDeviceGetMemoryInfo(self, handle: int, version: int | None = None) -> Any:  # noqa: N802
        if version and "v2" in self.silent:
            raise NVMLError("function not found")
        return SimpleNamespace(total=24 * GIB, used=(2 if version else 3) * GIB)

    def nvmlDeviceGetName(self, handle: int) -> str | bytes:  # noqa: N802
        return b"NVIDIA L4" if self.bytes_for_text else "NVIDIA L4"

    def nvmlDeviceGetUUID(self, handle: int) -> str:  # noqa: N802
        return self.prefix + UUID

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802
        return "570.86.10"

    def nvmlDeviceGetCurrPcieLinkGeneration(self, handle: int) -> int:  # noqa: N802
        return 1

    def nvmlDeviceGetMaxPcieLinkGeneration(self, handle: int) -> int:  # noqa: N802
        return 4

    def nvmlDeviceGetCurrPcieLinkWidth(self, handle: int) -> int:  # noqa: N802
        return 8

    def nvmlDeviceGetMaxPcieLinkWidth(self, handle: int) -> int:  # noqa: N802
        return 16


ALL = DeviceFacts("NVIDIA L4", f"GPU-{UUID}", "570.86.10", 24 * GIB, 2 * GIB, 1, 4, 8, 16)


@pytest.mark.parametrize(
    ("uuid", "address"), [(UUID, None), (f"GPU-{UUID}", None), (UUID, "other"), ("other", ADDRESS), (None, ADDRESS)]
)
def test_a_card_is_found_by_uuid_or_address(uuid: str | None, address: str | None) -> None:
    nvml = Nvml()
    assert read_facts(uuid, address, nvml=nvml) == ALL
    assert nvml.open == 0
    assert str(ALL) == "NVIDIA L4 of 24 GiB, PCIe 4.0 x8 of x16, driver 570.86.10"


def test_a_part_of_a_card_is_found_too() -> None:
    facts = read_facts(UUID, nvml=Nvml(prefix="MIG-"))
    assert facts is not None and facts.uuid == f"MIG-{UUID}"


@pytest.mark.parametrize(
    ("uuid", "address", "silent"),
    [("other", "other", set()), (None, None, set()), (UUID, ADDRESS, {"nvmlInit"})],
)
def test_nothing_known_is_none_and_no_error(uuid: str | None, address: str | None, silent: set[str]) -> None:
    nvml = Nvml(silent=silent)
    assert read_facts(uuid, address, nvml=nvml) is None
    assert nvml.open == 0


@pytest.mark.parametrize(
    ("question", "missing", "line"),
    [
        ("nvmlDeviceGetName", ["product"], "unknown card of 24 GiB, PCIe 4.0 x8 of x16, driver 570.86.10"),
        ("nvmlDeviceGetMemoryInfo", ["memory_bytes", "used_bytes"], "NVIDIA L4, PCIe 4.0 x8 of x16, driver 570.86.10"),
        ("nvmlDeviceGetCurrPcieLinkWidth", ["pcie_width"], "NVIDIA L4 of 24 GiB, driver 570.86.10"),
        ("nvmlDeviceGetMaxPcieLinkWidth", ["pcie_width_max"], "NVIDIA L4 of 24 GiB, PCIe 4.0 x8, driver 570.86.10"),
        ("nvmlSystemGetDriverVersion", ["driver"], "NVIDIA L4 of 24 GiB, PCIe 4.0 x8 of x16"),
    ],
)
def test_what_the_driver_refuses_is_missing_alone(question: str, missing: list[str], line: str) -> None:
    facts = read_facts(UUID, nvml=Nvml(silent={question}))
    assert facts is not None
    assert [name for name, value in vars(facts).items() if value is None] == missing
    assert str(facts) == line


def test_old_libraries_and_drivers_are_understood() -> None:
    facts = read_facts(UUID, nvml=Nvml(silent={"v2"}, bytes_for_text=True))
    assert facts is not None and (facts.product, facts.used_bytes) == ("NVIDIA L4", 3 * GIB)


def test_a_cuda_device_is_matched_by_what_torch_says_of_it() -> None:
    """CUDA_VISIBLE_DEVICES=1 makes the second card CUDA's device 0: its own UUID and address come with it."""
    by_uuid = SimpleNamespace(uuid=UUID)
    by_address = SimpleNamespace(uuid="unknown", pci_domain_id=0, pci_bus_id=0x3B, pci_device_id=0)
    assert cuda_facts(by_uuid, nvml=Nvml()) == cuda_facts(by_address, nvml=Nvml()) == ALL
    assert cuda_facts(SimpleNamespace(), nvml=Nvml()) is None


def test_a_machine_without_nvml_has_no_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)
    assert read_facts(UUID) is None
