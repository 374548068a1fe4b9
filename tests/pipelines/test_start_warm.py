"""A start that reuses what an earlier one proved: straight there, proven again; or, whatever is wrong, in full."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from starts import Start, begin, settings_of, start
from stowplan_agent.lifecycle import StartSettings
from stowplan_agent.lifecycle.phases import Outcome
from stowplan_agent.lifecycle.switch import KillSwitch
from stowplan_agent.lifecycle.warm_start import Store, StoredStart
from stowplan_agent.lifecycle.warm_start import key as keys
from stowplan_api.residency_placement import Phase

COLD = ["Inventory", "Load", "Warm", "Probe", "WarmAgain", "Solve", "Apply", "Validate"]
WARM = ["Inventory", "Load", "Warm", "Revalidate"]


@dataclass
class Earlier:
    """What a cold start left, and what it was."""

    path: Path
    text: str
    name: str
    output: bytes
    placement: str
    weights: int


@pytest.fixture(scope="module")
def earlier(tiny_wan: Path, tmp_path_factory: pytest.TempPathFactory) -> Earlier:
    records = tmp_path_factory.mktemp("records")
    started = start(settings_into(tiny_wan, records))
    try:
        assert started.phase == "Ready", started.error
        assert started.phases == COLD
        assert started.condition("Calibrated").message.endswith(f"; {records} has no stored start of this model")
        (file,) = records.iterdir()
        placement = started.startup.prepared.session.placement().canonical()
        return Earlier(tiny_wan, file.read_text(), file.name, started.output(), placement, started.weights_on_device())
    finally:
        started.startup.close()


def settings_into(path: Path, records: Path, **more: object) -> StartSettings:
    environment = {"STOWPLAN_RECORD_DIR": str(records)} | dict(more.pop("environment", {}))  # type: ignore[call-overload]
    return settings_of(path, "40Mi", environment=environment, **more)  # type: ignore[arg-type]


@pytest.fixture
def records(earlier: Earlier, tmp_path: Path) -> Path:
    """A directory with what the cold start left."""
    folder = tmp_path / "records"
    folder.mkdir()
    (folder / earlier.name).write_text(earlier.text)
    return folder


@pytest.fixture
def until(earlier: Earlier, records: Path) -> Iterator[Callable[..., Start]]:
    """Run a start in that directory until a phase is done."""
    begun: list[Start] = []

    def run(phase: Phase | None = None, switch: KillSwitch | None = None, **more: object) -> Start:
        settings = settings_into(earlier.path, records, **more)
        startup, progress = begin(settings, switch=switch)
        begun.append(Start(settings, startup, progress, "Pending"))
        begun[-1].phase = startup.run(until=phase)
        return begun[-1]

    yield run
    for started in begun:
        started.startup.close()


def change(records: Path, alter: Callable[[StoredStart], StoredStart]) -> None:
    """Another content, with a digest that is right."""
    (path,) = records.iterdir()
    path.write_text(alter(StoredStart.parse(path.read_text(), "file")).text())


def test_a_match_is_loaded_straight_to_and_proven(until: Callable[..., Start], earlier: Earlier) -> None:
    started = until()
    assert (started.phase, started.phases) == ("Ready", WARM)
    conditions = {condition.type: (condition.status, condition.reason) for condition in started.status.conditions}
    assert conditions == {
        "Calibrated": ("True", "Reused"),
        "Applied": ("True", "StoredPlacement"),
        "Validated": ("True", "Proven"),
        "RolledBack": ("False", "NoRollback"),
        "Ready": ("False", "Starting"),
    }
    session = started.startup.prepared.session
    assert session.placement().canonical() == earlier.placement
    session.check()
    assert started.weights_on_device() == earlier.weights
    assert sum(part.device_bytes for part in started.status.components) == earlier.weights
    assert started.output() == earlier.output
    assert started.status.validation is not None and started.status.validation.bit_equal
    assert started.status.plan is not None
    # Measured beside what the same step took when it was proven: the same thing, so the same numbers.
    assert started.metric("predicted_peak_bytes") == started.metric("measured_peak_bytes")
    assert started.metric("predicted_seconds") == pytest.approx(started.metric("measured_seconds"))
    card = "Emulated 40 MiB"
    assert started.metric("placement_info", plan=started.status.plan.id, device=card, uuid="", product=card) == 1


def test_a_reused_placement_can_be_recalled_like_any_other(until: Callable[..., Start], earlier: Earlier) -> None:
    started = until()
    assert started.startup.serves_a_plan
    assert started.startup.recall() == "RolledBack"
    prepared = started.startup.prepared
    assert prepared.session.placement() == prepared.seed
    assert started.weights_on_device() == 0
    assert started.output() == earlier.output
    assert started.startup.warm_start.stored is None


def test_nothing_is_put_into_the_seed_placement_on_the_way(until: Callable[..., Start], earlier: Earlier) -> None:
    started = until("Load")
    session = started.startup.preparation.session
    assert session.placement().canonical() == earlier.placement
    assert session.engine.ledger.streamed_bytes <= earlier.weights


def test_a_read_only_directory_warms_as_well(until: Callable[..., Start], records: Path) -> None:
    records.chmod(0o555)
    try:
        assert until().phases == WARM
    finally:
        records.chmod(0o755)


LOOKED_UP = [
    ("torn", lambda text: text[: len(text) // 2], "is torn or no JSON"),
    ("format", lambda text: text.replace('"format": 1', '"format": 7'), "has format 7, and this version reads 1"),
    ("edited", lambda text: text.replace('"residentLayers": ', '"residentLayers": 1'), "was changed or damaged"),
]


@pytest.mark.parametrize(("name", "alter", "words"), LOOKED_UP, ids=[case[0] for case in LOOKED_UP])
def test_a_file_that_cannot_be_used_is_a_reason_and_no_failure(
    until: Callable[..., Start], records: Path, name: str, alter: Callable[[str], str], words: str
) -> None:
    (path,) = records.iterdir()
    path.write_text(alter(path.read_text()))
    started = until("Inventory")
    calibrated = started.condition("Calibrated")
    assert (calibrated.status, calibrated.reason) == ("Unknown", "NotReused")
    assert words in calibrated.message
    assert started.startup.warm_start.stored is None


@pytest.mark.parametrize("program", ["torch", "diffusers", "stowplan"])
def test_another_version_of_a_program_is_another_fingerprint(
    until: Callable[..., Start], program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = keys.installed_version
    monkeypatch.setattr(keys, "installed_version", lambda name: "9.9" if name == program else installed(name))
    started = until("Inventory")
    assert f"a stored start of this model with another {program} (" in started.condition("Calibrated").message
    assert "and not 9.9)" in started.condition("Calibrated").message


@pytest.mark.parametrize(
    ("more", "fact"),
    [
        ({"shapes": ["32x32x5@3"]}, "shapes"),
        ({"memory_limit": 4 << 30}, "memory limit"),
        ({"spec": {"residency": {"deviceReserve": "2Mi"}}}, "residency"),
        ({"environment": {"STOWPLAN_EMULATED_FLOPS": "1e9"}}, "STOWPLAN_EMULATED_FLOPS"),
        ({"environment": {"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1"}}, "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"),
    ],
)
def test_other_limits_or_another_workload_are_another_fingerprint(
    until: Callable[..., Start], more: dict[str, object], fact: str
) -> None:
    assert f"with another {fact} (" in until("Inventory", **more).condition("Calibrated").message


def test_what_does_not_fit_this_pod_any_more_is_not_even_loaded(until: Callable[..., Start], records: Path) -> None:
    def grown(start: StoredStart) -> StoredStart:
        intervals = tuple(
            interval.model_copy(
                update={
                    "runs": tuple(run.model_copy(update={"activation_bytes": (39 << 20,)}) for run in interval.runs)
                }
            )
            for interval in start.record.intervals
        )
        return start.model_copy(update={"record": start.record.model_copy(update={"intervals": intervals})})

    change(records, grown)
    message = until("Inventory").condition("Calibrated").message
    assert message.startswith("the stored start does not fit this pod: interval 0 ")


def test_the_kill_switch_is_older_than_any_file(until: Callable[..., Start], earlier: Earlier) -> None:
    started = until(environment={"STOWPLAN_DISABLE_AUTO_RESIDENCY": "1"})
    assert started.phase == "Ready"
    assert "Revalidate" not in started.phases
    assert started.condition("Applied").reason == "ResidencyDisabled"
    assert started.weights_on_device() == 0


def other_layers(start: StoredStart) -> StoredStart:
    first, *rest = start.record.components
    changed = first.model_copy(update={"loose_bytes": first.loose_bytes - 256})
    return start.model_copy(update={"record": start.record.model_copy(update={"components": (changed, *rest)})})


def other_bounded(start: StoredStart) -> StoredStart:
    return start.model_copy(update={"bounded_digest": "0" * 64})


def other_output(start: StoredStart) -> StoredStart:
    return start.model_copy(update={"step": start.step.model_copy(update={"digest": "0" * 64})})


def smaller_peak(start: StoredStart) -> StoredStart:
    return start.model_copy(update={"step": start.step.model_copy(update={"peak_bytes": start.step.peak_bytes // 2})})


def more_pinned(start: StoredStart) -> StoredStart:
    return start.model_copy(update={"pinned_bytes": 1 << 30})


GIVEN_UP: list[tuple[Callable[[StoredStart], StoredStart], Phase, str]] = [
    (other_layers, "Load", "layers, and had "),
    (more_pinned, "Load", "the driver locked "),
    (other_bounded, "Warm", "the bounded request gave "),
    (other_output, "Revalidate", "the output differs from the reference"),
    (smaller_peak, "Revalidate", "one step peaks at "),
]


@pytest.mark.parametrize(("alter", "phase", "words"), GIVEN_UP, ids=[case[0].__name__ for case in GIVEN_UP])
def test_whatever_differs_leads_back_to_the_seed_placement(
    until: Callable[..., Start],
    records: Path,
    alter: Callable[[StoredStart], StoredStart],
    phase: Phase,
    words: str,
) -> None:
    change(records, alter)
    started = until(phase)
    calibrated = started.condition("Calibrated")
    assert (calibrated.status, calibrated.reason) == ("Unknown", "NotReused")
    assert calibrated.message.startswith("the stored start does not hold here: ")
    assert words in calibrated.message
    preparation = started.startup.preparation
    assert preparation.session.placement() == preparation.loaded.seed
    assert preparation.session.accelerator.counters().weights == 0
    preparation.session.check()
    # A proof that failed would fail again; what does not suit this pod may suit another.
    assert bool(list(records.iterdir())) == (phase != "Revalidate")


@pytest.mark.parametrize(("phase", "after"), [("Warm", "Load"), ("Revalidate", "Warm")])
def test_a_request_that_fails_in_any_way_leads_back_as_well(
    until: Callable[..., Start], phase: Phase, after: Phase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not for want of memory alone: a stored placement is no reason for a start to end."""
    started = until(after)
    warm_start, preparation = started.startup.warm_start, started.startup.preparation
    run, failing = preparation.session.pipeline.run, [RuntimeError("CUDNN_STATUS_EXECUTION_FAILED")]
    monkeypatch.setattr(preparation.session.pipeline, "run", lambda *a, **k: throw(failing) or run(*a, **k))
    outcome = warm_start.warm() if phase == "Warm" else warm_start.revalidate()
    assert outcome is (Outcome.DONE if phase == "Warm" else Outcome.STALE)
    assert "RuntimeError: CUDNN_STATUS_EXECUTION_FAILED" in started.condition("Calibrated").message
    assert warm_start.stored is None
    assert preparation.session.placement() == preparation.loaded.seed


def throw(once: list[RuntimeError]) -> None:
    if once:
        raise once.pop()


def test_after_a_failed_proof_the_whole_sequence_runs_and_leaves_a_better_file(
    until: Callable[..., Start], records: Path, earlier: Earlier
) -> None:
    change(records, other_output)
    started = until()
    assert (started.phase, started.phases) == ("Ready", [*WARM, *COLD[3:]])
    calibrated = started.condition("Calibrated")
    assert (calibrated.status, calibrated.reason) == ("True", "Measured")
    assert "; the stored start does not hold here: the output differs from the reference" in calibrated.message
    assert started.condition("Applied").reason == "PlanApplied"
    assert started.startup.prepared.session.placement().canonical() == earlier.placement
    assert started.output() == earlier.output
    found = Store(records).find(started.startup.warm_start.facts)
    assert isinstance(found, StoredStart)
    assert found.step.digest == StoredStart.parse(earlier.text, "file").step.digest


@pytest.mark.parametrize("fault", ["validate.run", "validate.output", "validate.memory"])
def test_faults_of_a_validation_are_those_of_a_revalidation(until: Callable[..., Start], fault: str) -> None:
    started = until("Revalidate", faults=fault)
    assert started.condition("Calibrated").reason == "NotReused"
    assert started.status.rollbacks == ()


def test_a_revalidation_past_its_deadline_is_given_up(until: Callable[..., Start]) -> None:
    started = until("Revalidate", environment={"STOWPLAN_PHASE_DEADLINES": "Revalidate=0.000001"})
    assert "phase Revalidate has not ended after" in started.condition("Calibrated").message
    assert started.condition("Calibrated").reason == "NotReused"


def test_the_switch_thrown_while_a_stored_start_is_tried(until: Callable[..., Start]) -> None:
    switch = KillSwitch()
    startup = until("Load", switch=switch).startup
    switch.throw()
    assert startup.warm_start.warm() is Outcome.DONE
    assert startup.preparation.session.placement() == startup.preparation.loaded.seed
