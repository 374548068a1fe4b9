"""Many runs at once equal the one recurrence, run by run, and the bounds in columns stay below it."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from examples import component, interval, made, record_of
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan_agent.planning import lanes as lanes_module
from stowplan_agent.planning.lanes import lane_seconds
from stowplan_agent.planning.layout import layout_of
from stowplan_agent.planning.options import layerwise_entry
from stowplan_agent.planning.pareto import undominated
from stowplan_agent.planning.pricing import ShapePricer
from stowplan_agent.planning.problems import entry_problems
from stowplan_agent.planning.ring import Layer, run_seconds
from stowplan_agent.planning.timeline import timeline_of
from stowplan_agent.planning.visits import Visits

times = st.one_of(st.integers(0, 12).map(float), st.floats(1e-3, 12))


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_lanes_equal_runs(data: st.DataObject) -> None:
    rings = data.draw(st.integers(1, 3))
    ring_of = sorted(data.draw(st.lists(st.integers(0, rings - 1), min_size=1, max_size=9)))
    layers, lanes = len(ring_of), data.draw(st.integers(1, 5))
    seconds = data.draw(st.lists(times, min_size=layers, max_size=layers))
    loose, contention = data.draw(times), data.draw(st.sampled_from([1.0, 1.05, 1.5, 3.0]))
    passes = data.draw(st.sampled_from([0, 1, 2, 3, 7, 40]))
    cells = layers * lanes
    streamed = np.array(data.draw(st.lists(st.booleans(), min_size=cells, max_size=cells))).reshape(layers, lanes)
    copies = np.array(data.draw(st.lists(times, min_size=cells, max_size=cells))).reshape(layers, lanes) * streamed
    swaps = None
    if data.draw(st.booleans()):  # with peers: some layers only swap
        swaps = np.array(data.draw(st.lists(times, min_size=cells, max_size=cells))).reshape(layers, lanes) * streamed
        copies *= np.array(data.draw(st.lists(st.booleans(), min_size=cells, max_size=cells))).reshape(layers, lanes)
    drawn = data.draw(st.lists(st.integers(2, 3), min_size=rings * lanes, max_size=rings * lanes))
    slots = np.array(drawn).reshape(rings, lanes)
    with patch.object(lanes_module, "MANY", data.draw(st.sampled_from([0, 8]))):
        found = lane_seconds(passes, loose, seconds, ring_of, slots, copies, streamed, contention, swaps)
    for lane in range(lanes):
        run = [
            Layer(
                one,
                ring if streamed[i, lane] else -1,
                float(copies[i, lane]),
                0.0 if swaps is None else float(swaps[i, lane]),
            )
            for i, (one, ring) in enumerate(zip(seconds, ring_of, strict=True))
        ]
        alone = run_seconds(passes, loose, run, slots[:, lane].tolist(), contention)
        assert found[lane] == pytest.approx(alone, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("hard-4-two-experts-48gib.json", "transformer"),
        ("hard-2-permanent-or-forward-80gib.json", "transformer"),
        ("hard-7-unequal-pins-2-ranks.json", "transformer"),
        ("hard-1-keep-or-die-31gib.json", "text_encoder"),
    ],
)
def test_columns_say_what_a_layout_says(name: str, part: str) -> None:
    record = record_of(name)
    visits = Visits(record, timeline_of(record), record.component(part))
    pricer = ShapePricer(visits)
    draw = np.random.default_rng(1)
    shapes = draw.choice(len(pricer.table), 60, replace=False)
    pins = draw.integers(0, pricer.table.most[shapes] + 1)
    locked = pricer.locked(shapes, pins)
    for link in range(len(visits.links)):
        exact, bound = pricer.exact(shapes, pins, link), pricer.bound(shapes, pins, link)
        assert (bound <= exact * (1 + 1e-9)).all()
        for row, shape in enumerate(shapes):
            table = pricer.table
            entry = layerwise_entry(
                visits.component, table.streams(shape), table.lives(shape), tuple((int(one),) for one in pins[row])
            )
            layout = layout_of(visits.component, entry, 1)
            held = (table.always[shape], table.own[shape], table.host[shape], locked[row])
            assert (layout.always, layout.own, layout.host[0], layout.locked[0]) == held
            assert visits.times(layout, 0, link) == pytest.approx(exact[row], rel=1e-11)


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_columns_say_what_a_layout_says_with_peers(ranks: int) -> None:
    parts = [component("denoiser", 0.5, [0.25, 0.5, 0.5, 0.75, 0.25]), component("vae", 0.5)]
    parts[0]["groups"].append({"name": "others", "layerBytes": [3000, 1 << 28, 1 << 29]})
    stay = interval("denoiser", 5, 0.5, layers=5, seconds=0.01)
    stay["runs"][0]["layerSeconds"]["others"] = [0.02, 0.001, 0.03]
    record = made(parts, [stay, interval("vae", 1, 0.5)], card=100, ranks=ranks, peers=50e9)
    visits = Visits(record, timeline_of(record), record.components[0])
    pricer = ShapePricer(visits)
    draw = np.random.default_rng(ranks)
    shapes = draw.choice(len(pricer.table), 200, replace=False)
    pins = draw.integers(0, pricer.table.most[shapes] + 1)
    locked, table = pricer.locked(shapes, pins), pricer.table
    exact, bound, busy = (each(shapes, pins, 0) for each in (pricer.exact, pricer.bound, pricer.busy))
    assert len(visits.links) == 1 and (bound <= exact * (1 + 1e-9)).all() and (busy <= exact * (1 + 1e-9)).all()
    for row, shape in enumerate(shapes):
        same = tuple((int(one),) * ranks for one in pins[row])
        entry = layerwise_entry(visits.component, table.streams(shape), table.lives(shape), same)
        assert not entry_problems(visits.component, entry, ranks, peers=True)
        layout = visits.layout(entry)
        assert (layout.always, layout.own) == (table.always[shape], table.own[shape])
        assert (sum(layout.host), sum(layout.locked)) == (table.host[shape], locked[row])
        for rank in range(ranks):
            assert visits.times(layout, rank, 0) == pytest.approx(exact[row], rel=1e-11)


@given(st.lists(st.tuples(*[st.integers(0, 4)] * 3), max_size=40))
def test_undominated(rows: list[tuple[int, ...]]) -> None:
    columns = np.array(rows, dtype=np.float64).reshape(-1, 3)
    kept = {rows[index] for index in undominated(columns)}
    best = {
        one
        for one in rows
        if not any(other != one and all(a <= b for a, b in zip(other, one, strict=True)) for other in rows)
    }
    assert kept == best and len(undominated(columns)) == len(best)
