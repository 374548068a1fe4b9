"""What cannot fit in any placement is refused before loading, with numbers and the name of the limit."""

from __future__ import annotations

import pytest

from stowplan_agent.inventory.cgroups import Cap
from stowplan_agent.inventory.components import ComponentInventory, GroupInventory, Inventory
from stowplan_agent.inventory.errors import InventoryError
from stowplan_agent.inventory.host_limits import HostLimits
from stowplan_agent.inventory.need import check_need, predict_need, refusal

MIB = 1 << 20


def component(name: str, loose: int, *layers: int) -> ComponentInventory:
    groups = (GroupInventory("blocks", layers),) if layers else ()
    return ComponentInventory(name, "Class", "diffusers", 0, 0, loose, groups)


NEED = predict_need(
    Inventory(
        "wan",
        "WanPipeline",
        "sha256:0",
        "float32",
        (
            component("encoder", 4 * MIB, *[2 * MIB] * 4),
            component("denoiser", MIB, *[3 * MIB] * 8),
            component("vae", 9 * MIB),
        ),
    )
)


def host(headroom: int, name: str = "memory.max of cgroup /pod") -> HostLimits:
    return HostLimits((Cap(name, headroom + MIB, MIB), Cap("MemAvailable of the machine", 1 << 50, 0)))


def test_need_of_components() -> None:
    assert [(part.name, part.least, part.total) for part in NEED.components] == [
        ("encoder", 8 * MIB, 12 * MIB),
        ("denoiser", 7 * MIB, 25 * MIB),
        ("vae", 9 * MIB, 9 * MIB),
    ]
    assert (NEED.total, NEED.largest.name) == (46 * MIB, "vae")


@pytest.mark.parametrize(("layers", "least"), [((1,), 1), ((5, 1), 6), ((5, 1, 1), 7), ((9, 1, 9, 9), 18)])
def test_a_ring_is_never_charged_more_than_its_stack(layers: tuple[int, ...], least: int) -> None:
    inventory = Inventory("m", "P", "f", "float32", (component("c", 0, *layers),))
    assert predict_need(inventory).components[0].least == least


@pytest.mark.parametrize(
    ("device", "ranks", "expected"), [(46, 1, 0), (100, 1, 0), (40, 1, 6), (9, 1, 37), (40, 4, 24)]
)
def test_what_the_device_cannot_keep_needs_a_host_copy_for_each_rank(device: int, ranks: int, expected: int) -> None:
    assert NEED.host_bytes(device * MIB, ranks=ranks) == expected * MIB


@pytest.mark.parametrize(
    ("device", "headroom", "options", "says"),
    [
        (46, 0, {}, None),
        (9, 37, {}, None),
        (8, 999, {}, "does not fit card 0: vae needs 9 MiB of device memory even when streamed, and 8 MiB are free"),
        (9, 36, {}, "37 MiB of host memory, and memory.max of cgroup /pod (37 MiB) leaves 36 MiB; raise it by 1 MiB"),
        (40, 23, {"ranks": 4}, "at least 24 MiB"),
        (46, 10, {"process_bytes": 11 * MIB}, "at least 11 MiB"),
        (46, 45, {"device_is_host": True}, "at least 46 MiB"),
        (46, 46, {"device_is_host": True}, None),
    ],
)
def test_refusals(device: int, headroom: int, options: dict[str, int], says: str | None) -> None:
    answer = refusal(NEED, device_bytes=device * MIB, device="card 0", host=host(headroom * MIB), **options)  # type: ignore[arg-type]
    assert (answer is None) if says is None else (answer is not None and says in answer)


def test_check_need_raises_the_same_sentence() -> None:
    limits = host(MIB)
    with pytest.raises(InventoryError) as error:
        check_need(NEED, device_bytes=9 * MIB, device="card 0", host=limits)
    assert str(error.value) == refusal(NEED, device_bytes=9 * MIB, device="card 0", host=limits)
    check_need(NEED, device_bytes=46 * MIB, device="card 0", host=limits)
