"""Whether a checkpoint can be hosted at all, judged before a byte of it is loaded.

This is no plan: activations are not known yet. It is the bound that no placement can beat, so a refusal here is always
right, and it comes with numbers and the name of the limit instead of an OOM kill an hour later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from stowplan_agent.inventory.components import ComponentInventory, Inventory
from stowplan_agent.inventory.errors import InventoryError
from stowplan_agent.inventory.host_limits import HostLimits
from stowplan_api.quantity import for_people

FEWEST_SLOTS: Final = 2
"""The smallest ring (PLANNING.md, 3): one slot computes while the other is filled."""


@dataclass(frozen=True, slots=True)
class ComponentNeed:
    """Weights of one component in bytes: ``least`` on the device while it runs, all streamed; and ``total``."""

    name: str
    least: int
    total: int


@dataclass(frozen=True)
class Need:
    """What the weights of a pipeline need, in bytes."""

    model: str
    components: tuple[ComponentNeed, ...]

    @property
    def total(self) -> int:
        """All weights: what it takes to keep everything resident."""
        return sum(component.total for component in self.components)

    @property
    def largest(self) -> ComponentNeed:
        """The component that needs most of the device when everything that can be streamed is."""
        return max(self.components, key=lambda component: component.least)

    def host_bytes(self, device_bytes: int, *, ranks: int = 1) -> int:
        """The fewest bytes of host copies on a node whose ``ranks`` devices hold ``device_bytes`` each.

        What the device cannot keep needs a host copy, one a rank (PLANNING.md, small print, "Several ranks").
        """
        return max(self.total - device_bytes, 0) * ranks


def predict_need(inventory: Inventory) -> Need:
    """The need of every component: streamed with the smallest ring where it has layers, whole where it has none."""
    return Need(inventory.model, tuple(_predict(component) for component in inventory.components))


def refusal(
    need: Need,
    *,
    device_bytes: int,
    device: str,
    host: HostLimits,
    ranks: int = 1,
    process_bytes: int = 0,
    device_is_host: bool = False,
) -> str | None:
    """Why no placement can work, in one sentence; None when one may.

    ``device_bytes``: what is free of each rank's device, named ``device``. ``process_bytes``: host memory that each
    rank's libraries will still take. ``device_is_host``: an emulated device, whose bytes are host memory as well.
    """
    least = need.largest
    if least.least > device_bytes:
        short = least.least - device_bytes
        return (
            f"{need.model} does not fit {device}: {least.name} needs {for_people(least.least)} of device memory even "
            f"when streamed, and {for_people(device_bytes)} are free; use a device with {for_people(short)} more"
        )
    weights = need.total * ranks if device_is_host else need.host_bytes(device_bytes, ranks=ranks)
    host_bytes = weights + process_bytes * ranks
    if host_bytes > host.headroom:
        short = host_bytes - host.headroom
        way_out = "" if device_is_host else ", or use a larger device"
        return (
            f"{need.model} needs at least {for_people(host_bytes)} of host memory, and {host.decided_by} "
            f"({for_people(host.tightest.limit)}) leaves {for_people(host.headroom)}; raise it by {for_people(short)}"
            f"{way_out}"
        )
    return None


def check_need(
    need: Need,
    *,
    device_bytes: int,
    device: str,
    host: HostLimits,
    ranks: int = 1,
    process_bytes: int = 0,
    device_is_host: bool = False,
) -> None:
    """As `refusal`, for callers that cannot go on: raises `InventoryError` with that sentence."""
    sentence = refusal(
        need,
        device_bytes=device_bytes,
        device=device,
        host=host,
        ranks=ranks,
        process_bytes=process_bytes,
        device_is_host=device_is_host,
    )
    if sentence is not None:
        raise InventoryError(sentence)


def _predict(component: ComponentInventory) -> ComponentNeed:
    rings = sum(min(FEWEST_SLOTS * max(group.layer_bytes), sum(group.layer_bytes)) for group in component.groups)
    return ComponentNeed(component.name, component.loose_bytes + rings, component.total_bytes)
