"""What the allocator takes beside activations is left free by a plan, unless nothing would fit then."""

from __future__ import annotations

from planned_records import RECORD
from stowplan_agent.lifecycle.measuring import with_room
from stowplan_agent.planning import solve
from stowplan_agent.planning.limits import LEAST_RESERVE, with_device_memory
from stowplan_api.record import CalibrationRecord

CARD = LEAST_RESERVE + RECORD.ranks[0].capacity_bytes
MIB = 1 << 20


def taking(nbytes: int, card: int = CARD) -> CalibrationRecord:
    """Nothing but the last component's interval takes more than the least reserve, by so many bytes."""
    rank = RECORD.ranks[0].model_copy(update={"reserve_bytes": None})
    last = max(index for index, one in enumerate(RECORD.intervals) if one.component)
    intervals = tuple(
        one.model_copy(update={"reserve_bytes": LEAST_RESERVE + nbytes if index == last else 0})
        for index, one in enumerate(RECORD.intervals)
    )
    return with_device_memory(RECORD.model_copy(update={"ranks": (rank,), "intervals": intervals}), card)


def peaks(record: CalibrationRecord) -> list[int]:
    cost = solve(record).cost
    assert cost is not None
    return [ranks[0] for ranks in cost.device_bytes]


def test_a_plan_leaves_it_free() -> None:
    record = with_room(taking(20 * MIB))
    assert record == taking(20 * MIB)
    room = [CARD - max(LEAST_RESERVE, one.reserve_bytes) for one in record.intervals]
    assert all(held <= most for held, most in zip(peaks(record), room, strict=True))
    assert max(peaks(taking(0))) > min(room)


def test_a_card_on_which_requests_run_is_not_too_small() -> None:
    record = with_room(taking(CARD))
    assert solve(taking(CARD)).status == "Infeasible"
    assert solve(record).status == "Optimal"
    assert "no placement leaves the allocator the 1.03 GiB that it takes" in record.provenance[-1]


def test_what_fits_no_way_keeps_its_numbers() -> None:
    tiny = LEAST_RESERVE + MIB
    assert with_room(taking(20 * MIB, tiny)) == taking(20 * MIB, tiny)
