"""The two hard records in which a placement is in place already, and what a real record without room says."""

from __future__ import annotations

import pytest
from examples import FOLDER, GIB, always, placed, placement_of, record_of

from stowplan_agent.planning import cost, moves, solve, with_device_memory
from stowplan_api.placement import ComponentPlacement, Placement

RECORDS = sorted(path.name for path in FOLDER.glob("*.json") if ".current." not in path.name)


@pytest.mark.parametrize("name", RECORDS)
def test_every_record_has_a_proven_optimum(name: str) -> None:
    record = record_of(name)
    plan = solve(record)
    assert (plan.status, plan.proof["status"]) == ("Optimal", "OPTIMAL")
    assert plan.cost == cost(record, placed(plan))
    assert plan.cost is not None and plan.cost.feasible
    assert plan.proof["boundSeconds"] == pytest.approx(plan.cost.seconds, rel=4e-6)


def test_hard_8_stays_where_every_order_of_moves_passes_a_limit() -> None:
    record = record_of("hard-8-no-safe-order-48gib.json")
    current = placement_of("hard-8-no-safe-order-48gib.current.json")
    free, plan = solve(record), solve(record, current=current)
    assert free.cost is not None and plan.cost is not None
    assert moves(record, current, placed(free)) is None
    assert plan.placement == current and plan.moves == ()
    assert plan.proof["withoutMovesSeconds"] == pytest.approx(free.cost.seconds, rel=1e-5)
    assert 1.003 < plan.cost.seconds / free.cost.seconds < 1.02, "about one percent is lost"


def test_hard_9_moves_nothing_where_nothing_is_gained() -> None:
    record = record_of("hard-9-nothing-to-gain-h200.json")
    current = placement_of("hard-9-nothing-to-gain-h200.current.json")
    plan = solve(record, current=current)
    assert plan.placement == current and plan.moves == ()
    everything = Placement(components=tuple(_whole(one.name) for one in record.components))
    assert plan.cost is not None
    assert plan.cost.seconds == pytest.approx(cost(record, everything).seconds, rel=1e-6)


def test_four_cards_pay_for_resident_layers_in_host_memory_too() -> None:
    """Every rank has its own host copies: 4 x 64 GiB are more than the node's 236."""
    record = record_of("wan22-t2v-a14b-4x4090.json")
    plan = solve(record)
    assert plan.cost is not None
    weights = sum(component.total_bytes() for component in record.components)
    (host,) = plan.cost.host_bytes.values()
    assert 4 * weights > record.nodes[0].host_bytes >= host


def test_hard_1_gives_up_encoder_layers_where_it_does_not_fit() -> None:
    record = with_device_memory(record_of("hard-1-keep-or-die-31gib.json"), int(23.5 * GIB))
    chosen = placed(solve(record))
    assert always(chosen.entry("transformer"), 60) == 60 > always(chosen.entry("text_encoder"), 36)


def _whole(name: str) -> ComponentPlacement:
    return ComponentPlacement(name=name, mode="Resident")
