"""Cases H10 and H12: several ranks under one host limit, and a card that others use too."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stowplan_agent.inventory.cgroups import Cap
from stowplan_agent.inventory.components import ComponentInventory, GroupInventory, Inventory
from stowplan_agent.inventory.host_limits import HostLimits
from stowplan_agent.inventory.need import predict_need, refusal
from stowplan_agent.planning import cost
from stowplan_agent.planning.limits import weight_room
from stowplan_api.placement import Placement
from stowplan_api.record import CalibrationRecord
from unit.planning.examples import GIB, component, interval, made, resident

MIB = 1 << 20


def model(layers: int, layer: int) -> Inventory:
    """A denoiser of equal layers and an encoder of half its size."""
    parts = (
        ComponentInventory("encoder", "E", "transformers", 0, 0, layers * layer // 2, ()),
        ComponentInventory("denoiser", "D", "diffusers", 0, 0, 0, (GroupInventory("blocks", (layer,) * layers),)),
    )
    return Inventory("model", "Pipe", "sha256:0", "float32", parts)


def everything_resident(record: CalibrationRecord) -> Placement:
    return Placement(components=tuple(resident(part.name) for part in record.components))


@given(st.integers(4, 60), st.integers(1, 700), st.integers(0, 150))
def test_h10_four_ranks_under_a_limit_of_half_as_much_again_as_the_model(layers: int, mib: int, percent: int) -> None:
    """Either the host copies of all ranks are predicted to fit, or the refusal has need, limit and its name."""
    need = predict_need(model(layers, mib * MIB))
    limit = need.total * 3 // 2
    device = max(need.largest.least, need.total * percent // 100)
    host = HostLimits((Cap("memory.max of cgroup /pod", limit, 0),))
    predicted = need.host_bytes(device, ranks=4)
    sentence = refusal(need, device_bytes=device, device="card", host=host, ranks=4)
    if predicted <= limit:
        assert sentence is None
    else:
        assert sentence is not None and "memory.max of cgroup /pod" in sentence and "raise it by" in sentence
    assert predicted == 4 * max(need.total - device, 0)


def test_h10_the_numbers_of_a_refusal() -> None:
    need = predict_need(model(40, 640 * MIB))
    assert need.total == 40 * 960 * MIB
    host = HostLimits((Cap("memory.max of cgroup /pod", need.total * 3 // 2, 0),))
    sentence = refusal(need, device_bytes=16 * GIB, device="card", host=host, ranks=4)
    assert sentence is not None
    for number in ("86 GiB of host memory", "(56.25 GiB)", "raise it by 29.75 GiB"):
        assert number in sentence, sentence
    assert refusal(need, device_bytes=24 * GIB, device="card", host=host, ranks=4) is None


@pytest.mark.parametrize(("held", "fits"), [(2, 22), (0, 24), (9, 15)])
def test_h12_a_ceiling_never_lifts_what_others_leave_of_a_card(held: int, fits: int) -> None:
    """24 GiB, a ceiling of 24 GiB, and another process: weights have what is left, to the byte."""
    record = made([component("vae", fits)], [interval("vae", 1, 0)], card=24, reserve=0)
    ranks = tuple(rank.model_copy(update={"outside_bytes": held * GIB}) for rank in record.ranks)
    record = record.model_copy(update={"ranks": ranks})
    assert weight_room(record) == ((fits * GIB,),)
    assert cost(record, everything_resident(record)).feasible
    over = record.model_copy(
        update={"components": (record.components[0].model_copy(update={"loose_bytes": fits * GIB + 1}),)}
    )
    assert not cost(over, everything_resident(over)).feasible
