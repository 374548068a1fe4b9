"""A phase has so many seconds, and one that takes longer says so once, whatever else it does."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from stowplan_agent.lifecycle.deadlines import DEADLINES, PHASES, Warmed, phase_deadlines, request_seconds, too_long
from stowplan_agent.lifecycle.watchdog import Watchdog
from stowplan_api.diffusion_deployment import DiffusionDeploymentSpec, Shape
from stowplan_api.model import ContractError
from stowplan_api.residency_placement import Phase


def spec(*shapes: dict[str, object], memory: str = "96Gi") -> DiffusionDeploymentSpec:
    return DiffusionDeploymentSpec.model_validate(
        {
            "model": {"source": "hf://a/b"},
            "workload": {"shapes": list(shapes) or [CLIP]},
            "resources": {"memory": memory},
        }
    )


CLIP: dict[str, object] = {"name": "clip", "width": 832, "height": 480, "frames": 81, "steps": 40}
STILL: dict[str, object] = {"name": "still", "width": 256, "height": 256, "steps": 2}


def test_every_phase_that_runs_has_one() -> None:
    computed = phase_deadlines(spec(), None, {})
    assert set(computed) == set(PHASES)
    assert all(300 <= seconds < math.inf for seconds in computed.values())


def test_more_to_read_and_more_to_compute_take_longer() -> None:
    small, large = (phase_deadlines(spec(memory=memory), None, {}) for memory in ("8Gi", "256Gi"))
    assert small["Load"] < large["Load"]
    assert small["Probe"] == large["Probe"]
    light, heavy = (phase_deadlines(spec(shape), None, {}) for shape in (STILL, CLIP))
    assert light["Probe"] < heavy["Probe"]
    assert light["Validate"] < heavy["Validate"]
    assert light["Load"] == heavy["Load"]
    assert phase_deadlines(spec(CLIP, STILL), None, {})["Probe"] > heavy["Probe"]


def test_a_proof_has_time_for_every_request_that_it_may_run() -> None:
    """A card as slow as the rates say runs each in just so long: none of them may be late for that."""
    computed = phase_deadlines(spec(), None, {})
    once = computed["Revalidate"] - computed["Solve"]
    # Each tried twice; two more runs of the reference; and the proof again after them.
    assert computed["Validate"] >= 2 * 1.25 * once + 2 * once + 1.25 * once + 300
    assert computed["RollBack"] >= 2 * 1.25 * once + 2 * once + 300


BOUNDED = Shape.model_validate(CLIP | {"frames": 17, "steps": 4})
FOUR = Shape.model_validate(CLIP | {"steps": 4})
RATE = 832 * 480 * 84 / 1024 * 4 / 500
"""Seconds of four steps at 500 tokens a second."""


@pytest.mark.parametrize(
    ("asked", "took", "seconds"),
    [
        (FOUR, None, RATE),
        (FOUR, 1e-3, RATE),  # a fast card keeps the bound of the rate
        (BOUNDED, 300.0, 900.0),  # itself: three times what it took
        (BOUNDED.model_copy(update={"steps": 40}), 300.0, 9000.0),
        (BOUNDED.model_copy(update={"steps": 1}), 300.0, 900.0),  # encoding and decoding are no fewer
        (FOUR, 300.0, 900.0 * (84 / 20) ** 2),
        (BOUNDED.model_copy(update={"width": 416}), 300.0, 900.0),
    ],
)
def test_what_a_request_may_take_follows_from_what_the_warm_up_took(
    asked: Shape, took: float | None, seconds: float
) -> None:
    warmed = None if took is None else Warmed(BOUNDED, took)
    assert request_seconds(asked, warmed) == pytest.approx(seconds, rel=1e-3)


def test_a_slow_card_gets_longer_for_what_it_computes_and_no_longer_for_anything_else() -> None:
    before = phase_deadlines(spec(), None, {})
    after = phase_deadlines(spec(), None, {}, Warmed(BOUNDED, 300.0))
    longer = {phase for phase in PHASES if after[phase] > before[phase]}
    assert longer == {"Revalidate", "Probe", "WarmAgain", "Validate", "RollBack"}
    assert all(after[phase] == before[phase] for phase in set(PHASES) - longer)
    stated = phase_deadlines(spec(), None, {DEADLINES: "Probe=7.5"}, Warmed(BOUNDED, 300.0))
    assert stated["Probe"] == 7.5


def test_before_anything_ran_the_warm_up_has_time_on_the_slowest_of_cards() -> None:
    """Two 14 B passes a step of 7,800 tokens in four steps, at 3.5 TFLOP a second: a quarter of an hour."""
    flop = 4 * 7800 * 2 * 2 * 14e9
    assert phase_deadlines(spec(), None, {})["Warm"] > 2 * flop / 3.5e12
    assert phase_deadlines(spec(STILL), None, {})["Warm"] < 400


def test_the_limit_of_the_process_counts_and_not_that_of_the_spec() -> None:
    assert phase_deadlines(spec(), 1 << 30, {})["Load"] < phase_deadlines(spec(), None, {})["Load"]


def test_single_ones_are_set_and_the_others_stay() -> None:
    computed = phase_deadlines(spec(), None, {})
    stated = phase_deadlines(spec(), None, {DEADLINES: "Load=5, Probe=7.5,"})
    assert (stated["Load"], stated["Probe"]) == (5, 7.5)
    assert {phase for phase in PHASES if stated[phase] != computed[phase]} == {"Load", "Probe"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Loading=5", ("'Loading'", "no phase", "Load, Warm")),
        ("Ready=5", ("'Ready'", "no phase")),
        ("Load", ("'Load'", "no positive number", "Load=SECONDS")),
        ("Load=soon", ("'Load=soon'",)),
        ("Load=0", ("'Load=0'",)),
        ("Load=-1", ("'Load=-1'",)),
        ("Load=inf", ("'Load=inf'",)),
        ("Load=nan", ("'Load=nan'",)),
    ],
)
def test_what_is_no_deadline_is_one_sentence(text: str, words: tuple[str, ...]) -> None:
    with pytest.raises(ContractError) as caught:
        phase_deadlines(spec(), None, {DEADLINES: text})
    for word in (DEADLINES, *words):
        assert word in str(caught.value)


def test_the_sentence_has_phase_limit_and_way_out() -> None:
    assert "phase Load has not ended after 600 s" in too_long("Load", 600.0)
    assert f"{DEADLINES}=Load=SECONDS" in too_long("Load", 600.0)


class Timers:
    """Timers that fire when told to."""

    def __init__(self) -> None:
        self.made: list[tuple[float, Callable[[], None]]] = []
        self.daemon = False
        self.running = False

    def __call__(self, seconds: float, call: Callable[[], None]) -> Timers:
        self.made.append((seconds, call))
        return self

    def start(self) -> None:
        self.running = True

    def cancel(self) -> None:
        self.running = False

    def fire(self) -> None:
        self.made[-1][1]()


@pytest.fixture
def timers() -> Timers:
    return Timers()


@pytest.fixture
def told() -> list[tuple[Phase, float]]:
    return []


@pytest.fixture
def watchdog(timers: Timers, told: list[tuple[Phase, float]]) -> Watchdog:
    return Watchdog({"Load": 5.0, "Warm": 6.0}, lambda phase, seconds: told.append((phase, seconds)), timers)


def test_a_late_phase_is_told_of_while_it_runs(
    watchdog: Watchdog, timers: Timers, told: list[tuple[Phase, float]]
) -> None:
    with watchdog.watching("Load"):
        assert (timers.made[0][0], timers.running, watchdog.late) == (5.0, True, False)
        timers.fire()
        assert watchdog.late
        assert told == [("Load", 5.0)]
    assert watchdog.late  # until the next one begins
    with watchdog.watching("Warm"):
        assert not watchdog.late


def test_a_timer_that_fires_after_its_phase_says_nothing(
    watchdog: Watchdog, timers: Timers, told: list[tuple[Phase, float]]
) -> None:
    with watchdog.watching("Load"):
        pass
    assert not timers.running
    timers.fire()
    with watchdog.watching("Warm"):
        timers.made[0][1]()
        assert not watchdog.late
    assert told == []


def test_a_phase_that_fails_is_not_watched_any_more(watchdog: Watchdog, timers: Timers) -> None:
    with pytest.raises(ZeroDivisionError), watchdog.watching("Load"):
        _ = 1 / 0
    assert not timers.running


def test_a_phase_without_a_deadline_may_take_any_time(watchdog: Watchdog, timers: Timers) -> None:
    with watchdog.watching("Solve"):
        assert timers.made == []
    assert watchdog.deadline("Solve") == math.inf


def test_a_phase_that_begins_again_has_all_of_its_seconds(
    watchdog: Watchdog, timers: Timers, told: list[tuple[Phase, float]]
) -> None:
    """What it tried first was late, and is given up: that is said, and is no failure of what comes in its place."""
    with watchdog.watching("Warm"):
        timers.fire()
        watchdog.begin_again()
        assert (len(timers.made), timers.running, watchdog.late) == (2, True, False)
        timers.made[0][1]()
        assert not watchdog.late, "the first timer has nothing to say any more"
        timers.fire()
        assert watchdog.late
    assert told == [("Warm", 6.0), ("Warm", 6.0)]
    watchdog.begin_again()  # nothing runs
    assert len(timers.made) == 2


def test_deadlines_are_lengthened_and_never_shortened_nor_made_where_there_were_none(watchdog: Watchdog) -> None:
    watchdog.lengthen({"Load": 4.0, "Warm": 60.0, "Solve": 1.0})
    assert [watchdog.deadline(phase) for phase in ("Load", "Warm", "Solve")] == [5.0, 60.0, math.inf]
