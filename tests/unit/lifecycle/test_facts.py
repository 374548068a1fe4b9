"""What the status says of placements, components and plans: in words and from the ledger."""

from __future__ import annotations

import pytest

from stowplan_agent.lifecycle.facts import bytes_text, component_status, infeasible_text, plan_status, summary
from stowplan_agent.weights import Ledger
from stowplan_agent.weights.ledger import Tier
from stowplan_api.placement import ComponentPlacement, Placement
from stowplan_api.plan import Change, Cost, Explanation, Plan, Violation
from stowplan_api.record import Component, Group

DENOISER = Component(
    name="denoiser",
    loose_bytes=3,
    groups=(Group(name="double", layer_bytes=(5,) * 4), Group(name="single", layer_bytes=(2,) * 6)),
)
LAYERWISE = ComponentPlacement.model_validate(
    {
        "name": "denoiser",
        "mode": "Layerwise",
        "groups": [
            {"name": "double", "residentLayers": 3, "lifetime": "Permanent", "pinnedLayers": [1]},
            {"name": "single", "residentLayers": 2, "lifetime": "Forward", "pinnedLayers": [6]},
        ],
    }
)


def test_a_placement_in_one_line() -> None:
    placement = Placement(
        components=(
            ComponentPlacement(name="text_encoder", mode="Offload"),
            LAYERWISE,
            ComponentPlacement(name="vae", mode="Resident"),
        )
    )
    assert summary(placement) == "text_encoder Offload, denoiser Layerwise 3+2 resident, vae Resident"


@pytest.mark.parametrize(
    ("entry", "resident", "lifetime"),
    [
        (LAYERWISE, 5, "Forward+Permanent"),
        (ComponentPlacement(name="denoiser", mode="Resident"), 10, "Permanent"),
        (ComponentPlacement(name="denoiser", mode="Offload"), 0, "Forward"),
    ],
)
def test_a_component_as_the_ledger_has_it(entry: ComponentPlacement, resident: int, lifetime: str) -> None:
    ledger = Ledger()
    ledger.take("denoiser", Tier.DEVICE, 19)
    ledger.take("denoiser", Tier.PINNED, 17)
    ledger.take("vae", Tier.DEVICE, 1000)
    status = component_status(DENOISER, entry, ledger)
    assert (status.name, status.mode, status.layers) == ("denoiser", entry.mode, 10)
    assert (status.resident_layers, status.lifetime) == (resident, lifetime)
    assert (status.device_bytes, status.pinned_bytes) == (19, 17)


def test_a_plan_in_integers() -> None:
    cost = Cost(feasible=True, seconds=1.2346, device_bytes=((5,), (9,), (7,)), locked_bytes={}, host_bytes={})
    why = Explanation(component="vae", chosen="Resident", because="nothing to gain " + "x" * 2000)
    status = plan_status(Plan(id="p", status="Optimal", cost=cost, explanations=(why,)))
    assert (status.id, status.predicted_milliseconds, status.predicted_peak_bytes) == ("p", 1235, 9)
    assert status.explanations[0].startswith("vae: Resident; nothing to gain")
    assert len(status.explanations[0].encode()) <= 1024
    assert status.kept is None
    kept = plan_status(Plan(id="p", status="Optimal", cost=cost), kept="the seed placement is kept: ...")
    assert kept.kept == "the seed placement is kept: ..."


def test_an_infeasible_plan_says_what_is_short_and_what_would_fit() -> None:
    short = [Violation(constraint="device", message=f"interval {number} is short") for number in range(5)]
    change = Change(what="deviceMemory", needed_bytes=5, message="5 bytes of device memory")
    plan = Plan(id="p", status="Infeasible", shortfalls=tuple(short), would_fit=(change,))
    assert infeasible_text(plan) == (
        "no placement fits: interval 0 is short; interval 1 is short; interval 2 is short; "
        "would fit: 5 bytes of device memory"
    )


def test_what_a_validation_measured() -> None:
    assert bytes_text(3 << 30, 1.5) == "peak 3 GiB, 1.500 s a request"
    assert bytes_text(3 << 30, None) == "peak 3 GiB"


def test_layers_in_shards_are_said_beside_the_resident_ones() -> None:
    groups = LAYERWISE.groups or ()
    entry = LAYERWISE.model_copy(update={"groups": (groups[0].model_copy(update={"sharded_layers": 1}), groups[1])})
    assert summary(Placement(components=(entry,))) == "denoiser Layerwise 3+2 resident, 1+0 sharded"
    assert component_status(DENOISER, entry, Ledger()).sharded_layers == 1
    assert component_status(DENOISER, LAYERWISE, Ledger()).sharded_layers is None
