"""What a user may ask of a placement: none at all, an own one, components kept or never kept, several shapes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from starts import Start, begin, settings_of, start, start_again
from stowplan_agent.lifecycle import StartSettings
from stowplan_agent.lifecycle.facts import summary
from stowplan_agent.lifecycle.target import Target, choose_target
from stowplan_agent.pipeline.request import Stopped
from stowplan_agent.planning import seed_placement
from stowplan_api.diffusion_deployment import Residency
from stowplan_api.record import CalibrationRecord


@pytest.fixture(scope="module")
def measured(tiny_wan: Path) -> Iterator[Start]:
    """A card of 40 MiB that was measured once; each test plans on it anew."""
    started = start(settings_of(tiny_wan, "40Mi"))
    yield started
    started.startup.close()


def entries(started: Start) -> list[dict[str, Any]]:
    """The placement in force as a user would write it."""
    placement = started.startup.prepared.session.placement()
    return [entry.to_json(exclude_none=True) for entry in placement.components]


def pinned(components: list[dict[str, Any]]) -> dict[str, Any]:
    return {"residency": {"mode": "Pinned", "placement": {"components": components}}}


OFFLOADED = [{"name": name, "mode": "Offload", "pinnedBytes": [0]} for name in ("vae", "text_encoder", "transformer")]


def test_static_proves_and_serves_the_seed_placement(measured: Start) -> None:
    started = start_again(measured, spec={"residency": {"mode": "Static"}})
    assert started.phase == "Ready"
    assert "Apply" not in started.phases
    assert "Validate" in started.phases
    applied = started.condition("Applied")
    assert (applied.status, applied.reason) == ("False", "StaticMode")
    assert started.startup.prepared.session.placement() == started.startup.prepared.seed
    assert started.status.plan is None


def test_the_environment_disables_the_adjustment(measured: Start) -> None:
    disabled = StartSettings.read(measured.settings.spec, {"STOWPLAN_DISABLE_AUTO_RESIDENCY": "1"}).disabled
    started = start_again(replace(measured, settings=replace(measured.settings, disabled=disabled)))
    assert started.phase == "Ready"
    assert started.condition("Applied").reason == "ResidencyDisabled"
    assert started.weights_on_device() == 0
    assert started.status.plan is None


def test_a_plan_no_faster_than_the_seed_placement_is_told_of_as_what_is_not_in_force(
    measured: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planner's placement is made slower here: everything streams, from memory that is not locked."""
    prepared = measured.startup.prepared

    def slow(record: CalibrationRecord, residency: Residency) -> Target:
        return replace(choose_target(record, residency), placement=seed_placement(record.components, ranks=1))

    monkeypatch.setattr("stowplan_agent.lifecycle.target.choose_target", slow)
    started = start_again(measured)
    assert (started.phase, "Apply" in started.phases) == ("Ready", False)
    assert prepared.session.placement() == prepared.seed
    applied, plan = started.condition("Applied"), started.status.plan
    assert (applied.status, applied.reason) == ("True", "AlreadyOptimal")
    assert applied.message.startswith("the seed placement is kept: it takes ")
    assert plan is not None
    assert plan.kept == applied.message
    card = "Emulated 40 MiB"
    assert started.metric("placement_info", plan="seed", device=card, uuid="", product=card) == 1


def test_a_pinned_placement_is_applied_and_proven_like_any_other(measured: Start) -> None:
    # Locked, as what is measured is: from pageable memory it would be slower than the reference, and rolled back.
    parts = {part.name: part.total_bytes() for part in measured.startup.prepared.record.components}
    locked = [entry | {"pinnedBytes": [parts[entry["name"]]]} for entry in OFFLOADED[1:]]
    started = start_again(measured, spec=pinned([*locked, {"name": "vae", "mode": "Resident"}]))
    assert started.phase == "Ready", started.error
    applied = started.condition("Applied")
    assert (applied.status, applied.reason) == ("True", "Pinned")
    assert started.status.validation is not None
    assert started.status.validation.bit_equal
    modes = {part.name: part.mode for part in started.status.components}
    assert modes == {"vae": "Resident", "text_encoder": "Offload", "transformer": "Offload"}


def test_the_plan_of_one_start_can_be_pinned_in_the_next(measured: Start) -> None:
    planned = start_again(measured)
    again = start_again(measured, spec=pinned(entries(planned)))
    assert again.phase == "Ready"
    assert again.condition("Applied").message == planned.condition("Applied").message
    assert again.status.validation is not None
    assert planned.status.validation is not None
    assert again.status.validation.peak_bytes == planned.status.validation.peak_bytes


def test_a_pinned_placement_that_does_not_fit_says_which_interval_and_how_many_bytes(measured: Start) -> None:
    everything = [entry | {"mode": "Resident"} for entry in OFFLOADED]
    for entry in everything:
        del entry["pinnedBytes"]
    started = start_again(measured, spec=pinned(everything))
    assert started.phase == "Failed"
    applied = started.condition("Applied")
    assert (applied.status, applied.reason) == ("False", "Infeasible")
    assert applied.message.startswith("residency.placement: interval ")
    assert "bytes more than the 40 MiB there are" in applied.message
    assert started.weights_on_device() == 0


def test_a_pinned_layer_count_out_of_range_is_refused(measured: Start) -> None:
    group = {"name": "blocks", "residentLayers": 9, "pinnedLayers": [0]}
    wanted = [*OFFLOADED[:2], {"name": "transformer", "mode": "Layerwise", "groups": [group]}]
    started = start_again(measured, spec=pinned(wanted))
    assert started.phase == "Failed"
    applied = started.condition("Applied")
    assert applied.reason == "SpecInvalid"
    assert "9 resident layers of 8" in applied.message.replace("residentLayers", "resident layers")


@pytest.mark.parametrize(
    ("residency", "sentence"),
    [
        (
            pinned([*OFFLOADED, {"name": "upscaler", "mode": "Resident"}]),
            "residency.placement names component upscaler, and WanPipeline has vae, text_encoder, transformer",
        ),
        (
            pinned(OFFLOADED[:2]),
            "residency.placement has no entry for component transformer; give every component one: WanPipeline has "
            "vae, text_encoder, transformer",
        ),
        (
            {"residency": {"prefer": {"keep": ["unet"]}}},
            "residency.prefer names component unet, and WanPipeline has vae, text_encoder, transformer",
        ),
        (
            {"residency": {"prefer": {"neverKeep": ["t5"]}}},
            "residency.prefer names component t5, and WanPipeline has vae, text_encoder, transformer",
        ),
    ],
)
def test_unknown_and_missing_components_are_refused_before_a_weight_is_read(
    tiny_wan: Path, residency: dict[str, Any], sentence: str
) -> None:
    started = start(settings_of(tiny_wan, "40Mi", spec=residency))
    started.startup.close()
    assert (started.phase, started.phases) == ("Failed", ["Inventory"])
    for condition in ("Calibrated", "Validated", "Ready"):
        assert started.condition(condition).status == "False"
    assert started.condition("Calibrated").reason == "SpecInvalid"
    assert sorted(started.error.replace(",", "").split()) == sorted(sentence.replace(",", "").split())


def test_a_spec_for_several_devices_is_refused_by_one_process_alone_before_a_weight_is_read(tiny_wan: Path) -> None:
    settings = settings_of(tiny_wan, "40Mi")
    resources = settings.spec.resources.model_copy(update={"gpus": 2})
    started = start(replace(settings, spec=settings.spec.model_copy(update={"resources": resources})))
    started.startup.close()
    assert (started.phase, started.phases) == ("Failed", ["Inventory"])
    assert started.condition("Calibrated").reason == "SpecInvalid"
    sentence = "the spec is for 2 devices, and this is one of 1 processes; start it as stowplan agent"
    assert started.error == sentence


def test_what_is_to_be_kept_is_kept_where_that_fits(measured: Start) -> None:
    started = start_again(measured, spec={"residency": {"prefer": {"keep": ["text_encoder"]}}})
    assert started.phase == "Ready"
    modes = {part.name: part.mode for part in started.status.components}
    assert modes["text_encoder"] == "Resident"


def test_what_cannot_be_kept_is_not_and_the_condition_says_why(measured: Start) -> None:
    everything = ["vae", "text_encoder", "transformer"]
    started = start_again(measured, spec={"residency": {"prefer": {"keep": everything}}})
    assert started.phase == "Ready"
    applied = started.condition("Applied")
    assert applied.status == "True"
    assert "residency.prefer.keep (vae, text_encoder, transformer) does not fit: interval " in applied.message
    assert started.status.resident != "12/12"


def test_what_is_never_to_be_kept_only_visits(measured: Start) -> None:
    started = start_again(measured, spec={"residency": {"prefer": {"neverKeep": ["vae"]}}})
    assert started.phase == "Ready"
    (vae,) = (part for part in started.status.components if part.name == "vae")
    assert (vae.mode, vae.device_bytes, vae.lifetime) == ("Offload", 0, "Forward")


def test_several_shapes_share_one_placement(tiny_wan: Path) -> None:
    started = start(settings_of(tiny_wan, "40Mi", shapes=["tall=32x64x5@2", "still=32x32x1@2"]))
    try:
        assert started.phase == "Ready"
        record = started.startup.prepared.record
        assert [workload.name for workload in record.workloads] == ["tall", "still"]
        for interval in record.intervals:
            assert [run.workload for run in interval.runs] == ["tall", "still"]
        decode = next(interval for interval in record.intervals if interval.component == "vae")
        assert decode.runs[0].activation_bytes > decode.runs[1].activation_bytes
        service = started.service()
        for width, height, frames in ((32, 64, 5), (32, 32, 1)):
            result = service.run(started.request(width=width, height=height, frames=frames), lambda: False)
            assert result.frames.shape == (frames, height, width, 3)
    finally:
        started.startup.close()


def test_a_start_that_is_asked_to_stop_ends_between_two_steps(tiny_wan: Path) -> None:
    asked: list[str] = []
    startup, progress = begin(
        settings_of(tiny_wan, "40Mi", shapes=["32x32x5@4"]),
        stop=lambda: bool(asked.append(progress.status.phase)) or asked.count("Warm") == 2,
    )
    try:
        with pytest.raises(Stopped):
            startup.run()
        assert asked == ["Pending", "Inventory", "Load", "Warm", "Warm"]
        startup.preparation.session.check()
        assert startup.preparation.session.accelerator.counters().weights == 0
    finally:
        startup.close()


def test_the_summary_names_every_component(measured: Start) -> None:
    started = start_again(measured)
    text = summary(started.startup.prepared.session.placement())
    assert started.condition("Applied").message == text
    for name in ("vae", "text_encoder", "transformer"):
        assert name in text
