"""Prefetches in the exact solve: where they win, where they must not, and how ties go."""

from __future__ import annotations

import pytest
from brute import placements
from early_records import unlike
from examples import GIB, component, interval, layerwise, made, offload, placed, record_of, resident
from tables import TOLERANCE

from stowplan_agent.planning import cost, moves, solve, with_device_memory
from stowplan_api.placement import Placement
from stowplan_api.record import CalibrationRecord


def early(record: CalibrationRecord, current: Placement | None = None) -> list[str]:
    return [entry.name for entry in placed(solve(record, current=current)).components if entry.prefetch]


def three(*, card: float, denoiser: float = 0.2, pinnable: float = 1000, ranks: int = 1) -> CalibrationRecord:
    """An encoder and a denoiser of 4 GiB each and a decoder of 1 GiB; the decoder's load may hide behind the denoiser.

    Weights are 9 GiB; the encoder's interval has activations of 2 GiB, all others none.
    """
    return made(
        [component("encoder", 4), component("denoiser", 4), component("vae", 1)],
        [
            interval("encoder", 1, 2, loose=0.05),
            interval("denoiser", 10, 0, loose=denoiser / 10),
            interval("vae", 1, 0, loose=0.05),
        ],
        card=card,
        pinnable=pinnable,
        reserve=0,
        ranks=ranks,
    )


def test_a_prefetch_wins_where_the_bytes_are_free_in_the_interval_before() -> None:
    record = three(card=10)
    plan = solve(record)
    assert early(record) == ["vae"]
    assert plan.cost is not None and plan.cost.seconds == pytest.approx(0.05 + 0.2 + 0.05, rel=3e-6)
    assert plan.proof["status"] == "OPTIMAL" and plan.cost.seconds == pytest.approx(plan.proof["boundSeconds"])


def test_a_prefetch_must_not_take_bytes_that_the_interval_before_needs() -> None:
    """One GiB of activations more in the denoiser's interval: there is no room for the decoder beside it."""
    data = three(card=10).to_json()
    data["intervals"][1]["runs"][0]["activationBytes"] = [GIB + GIB // 2]
    record = CalibrationRecord.from_json(data)
    plan = solve(record)
    assert early(record) == [] and plan.cost is not None
    assert plan.cost.seconds == pytest.approx(0.3 + GIB / 25e9, rel=3e-6)


def test_only_what_runs_before_hides_a_load() -> None:
    """The denoiser takes 0.02 s, the load of the decoder 0.043 s: the rest of it is waited for."""
    plan = solve(three(card=10, denoiser=0.02))
    assert plan.cost is not None and plan.cost.seconds == pytest.approx(0.05 + 0.05 + GIB / 25e9, rel=3e-6)


def test_only_what_does_not_hide_is_pinned() -> None:
    """0.2 s hide the whole decoder at 6 GB/s, and 0.1 s do not: then it is pinned as far as it takes."""
    assert placed(solve(three(card=10))).entry("vae").pinned_bytes == (0,)
    plan = solve(three(card=10, denoiser=0.1))
    (pinned,) = placed(plan).entry("vae").pinned_bytes or ()
    assert 0 < pinned < GIB and plan.cost is not None
    assert plan.cost.seconds == pytest.approx(0.2, rel=3e-6)
    assert pinned / 25e9 + (GIB - pinned) / 6e9 == pytest.approx(0.1, rel=1e-5)


def test_scarce_pins_are_divided_with_what_hides_in_mind() -> None:
    """Half a GiB of pins: they are worth nothing for a load that hides."""
    record = made(
        [component("encoder", 1), component("denoiser", 1), component("vae", 1)],
        [interval(None, 1, 3), *(interval(name, 1, 1, loose=0.3) for name in ("encoder", "denoiser", "vae"))],
        card=3,
        pinnable=0.5,
        reserve=0,
    )
    plan = solve(record)
    assert plan.cost is not None
    feasible = [priced.seconds for _, priced in placements(record) if priced.feasible]
    assert plan.cost.seconds <= min(feasible) * (1 + 1.1 * TOLERANCE)


def test_what_may_stay_for_good_is_not_prefetched() -> None:
    """A prefetch that hides would tie, and hold fewer bytes before the denoiser: it moves bytes for nothing."""
    record = three(card=12)
    plan = solve(record)
    assert {entry.mode for entry in placed(plan).components} == {"Resident"}
    tied = Placement(components=(resident("encoder"), resident("denoiser"), offload("vae", prefetch=True)))
    assert plan.cost is not None and cost(record, tied).seconds == pytest.approx(plan.cost.seconds)


@pytest.mark.parametrize("name", ["hard-1-keep-or-die-31gib.json", "wan22-t2v-a14b-h200.json"])
def test_no_byte_is_moved_where_everything_fits(name: str) -> None:
    assert {entry.mode for entry in placed(solve(record_of(name))).components} == {"Resident"}


def test_loads_hide_one_after_the_other() -> None:
    """Behind what is itself prefetched, a load hides for as long as that one runs."""
    record = made(
        [component("encoder", 2), component("denoiser", 1), component("vae", 1)],
        [interval("encoder", 1, 2, loose=0.3), interval("denoiser", 1, 0, loose=0.3), interval("vae", 1, 0)],
        card=5,
        reserve=0,
    )
    assert early(record) == ["denoiser", "vae"] or early(record) == ["vae"]
    plan = solve(record)
    assert plan.cost is not None and plan.cost.seconds == pytest.approx(0.61, rel=2e-6)


def test_a_current_prefetch_stays_where_it_is_as_good() -> None:
    record = three(card=12)
    current = Placement(components=(resident("encoder"), resident("denoiser"), offload("vae", [7], prefetch=True)))
    plan = solve(record, current=current)
    assert plan.placement == current and plan.moves == ()


def test_a_move_makes_room_for_a_prefetch_first() -> None:
    """The denoiser's interval is full until the encoder has left it."""
    record = three(card=10)
    current = Placement(components=(offload("encoder", [0]), resident("denoiser"), offload("vae", [0])))
    plan = solve(record, current=current)
    entries = {entry.name: entry for entry in current.components}
    for move in plan.moves:
        entries[move.component] = move.to
        assert cost(record, Placement(components=tuple(entries.values()))).feasible
    assert moves(record, current, placed(plan)) is not None and early(record, current) == ["vae"]


def test_the_proof_states_the_whole_of_section_2() -> None:
    plan = solve(three(card=10))
    assert plan.proof["leftOut"] == [] and "prefetch" in plan.proof["space"]


def test_ranks_of_unlike_links_leave_nothing_out_where_there_are_pins_enough() -> None:
    record = unlike(three(card=10, ranks=2))
    plan = solve(record)
    assert plan.cost is not None and early(record) == ["vae"]
    assert plan.proof["leftOut"] == []


def test_a_layered_component_leaves_the_link_to_a_prefetch_only_while_it_does_not_copy() -> None:
    """The denoiser streams at the pace of the link: nothing hides behind it, and an earlier load only takes bytes."""
    record = made(
        [component("denoiser", 0, [0.5] * 6), component("vae", 1)],
        [interval("denoiser", 4, 0, layers=6, seconds=0.001), interval("vae", 1, 0, loose=0.1)],
        card=2.1,
        reserve=0,
    )
    streaming = Placement(components=(layerwise("denoiser", 0, [6]), offload("vae", [GIB], prefetch=True)))
    plain = Placement(components=(layerwise("denoiser", 0, [6]), offload("vae", [GIB])))
    hidden = cost(record, plain).seconds - cost(record, streaming).seconds
    assert hidden == pytest.approx(0.001 * 2, abs=0.001)
    plan = solve(with_device_memory(record, int(2.1 * GIB)))
    feasible = [priced.seconds for _, priced in placements(record) if priced.feasible]
    assert plan.cost is not None and plan.cost.seconds <= min(feasible) * (1 + 1.1 * TOLERANCE)
