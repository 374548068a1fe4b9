"""The fast recurrence equals the slow reference, and what was measured on an H200."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import reference_seconds

from stowplan_agent.planning.ring import Layer, copy_seconds, least_seconds, run_seconds

times = st.one_of(st.integers(0, 20).map(float), st.floats(1e-4, 20))


@st.composite
def runs(draw: st.DrawFn) -> tuple[int, float, list[Layer], list[int], float]:
    slots = draw(st.lists(st.integers(2, 3), min_size=1, max_size=3))
    peers, layers = draw(st.booleans()), []
    for ring in draw(st.lists(st.integers(-1, len(slots) - 1), min_size=1, max_size=8)):
        sharded = peers and draw(st.booleans())
        copy = draw(times) if ring >= 0 and not sharded else 0.0
        layers.append(Layer(draw(times), ring, copy, draw(times) if ring >= 0 and peers else 0.0))
    return draw(st.integers(0, 40)), draw(times), layers, slots, draw(st.sampled_from([1.0, 1.05, 1.5, 3.0]))


@settings(max_examples=300, deadline=None)
@given(runs())
def test_equals_the_reference(run: tuple[int, float, list[Layer], list[int], float]) -> None:
    assert run_seconds(*run) == pytest.approx(reference_seconds(*run), rel=1e-9, abs=1e-9)


@settings(max_examples=200, deadline=None)
@given(runs())
def test_the_lower_bound_is_one(run: tuple[int, float, list[Layer], list[int], float]) -> None:
    passes, loose, layers, _, contention = run
    if passes:
        assert least_seconds(passes, loose, layers, contention) <= run_seconds(*run) * (1 + 1e-9) + 1e-12


@settings(max_examples=200, deadline=None)
@given(runs(), st.data())
def test_a_faster_copy_is_never_slower(
    run: tuple[int, float, list[Layer], list[int], float], data: st.DataObject
) -> None:
    passes, loose, layers, slots, contention = run
    index = data.draw(st.integers(0, len(layers) - 1))
    faster = list(layers)
    which = data.draw(st.sampled_from(["copy_seconds", "swap_seconds"]))
    faster[index] = layers[index]._replace(**{which: getattr(layers[index], which) * 0.5})
    assert run_seconds(passes, loose, faster, slots, contention) <= run_seconds(*run) * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize(("resident", "measured"), [(0, 0.518), (10, 0.398), (20, 0.300), (30, 0.290)])
def test_predicts_what_was_measured_on_an_h200(resident: int, measured: float) -> None:
    from stowplan_api.placement import streamed_layers

    streamed = streamed_layers(40, resident, "Strided")
    copy = 670 * (1 << 20) / 54.9e9
    layers = [Layer(0.284 / 40, 0 if i in streamed else -1, copy if i in streamed else 0.0) for i in range(40)]
    seconds = run_seconds(50, 0.0, layers, [2], 1.0) / 50
    assert seconds == pytest.approx(measured, rel=0.06)
    assert copy_seconds(1, layers) == pytest.approx(len(streamed) * copy)
