"""From what the probe measured to a record: observations of every declared shape, the limits as they are now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stowplan_agent import inventory
from stowplan_agent.calibration import CalibrationError, Machine, Observation, build_record
from stowplan_agent.lifecycle.errors import StartError
from stowplan_agent.lifecycle.limits import host_room, read_host
from stowplan_agent.lifecycle.loading import Loaded
from stowplan_agent.lifecycle.probe import Probed, workload_of
from stowplan_agent.lifecycle.settings import StartSettings
from stowplan_agent.lifecycle.shapes import describe, work
from stowplan_agent.lifecycle.survey import Survey
from stowplan_agent.planning import solve
from stowplan_agent.planning.limits import with_default_reserves
from stowplan_agent.weights.ledger import Tier
from stowplan_api.contract import PlacementReason
from stowplan_api.diffusion_deployment import Shape
from stowplan_api.quantity import for_people
from stowplan_api.record import CalibrationRecord, Component, Link, ModelIdentity


def record_of(
    survey: Survey, loaded: Loaded, settings: StartSettings, link: Link, probed: Sequence[Probed]
) -> CalibrationRecord:
    """The record of the declared shapes, one `Probed` for each. Raises `StartError` where they run different things."""
    shapes = settings.spec.workload.shapes
    pipeline, parts = loaded.session.pipeline, loaded.session.engine.describe()
    pairs = [(shape, probe.shape) for shape, probe in zip(shapes, probed, strict=True)]
    try:
        record = build_record(
            ModelIdentity(
                name=survey.checkpoint.name,
                pipeline=survey.checkpoint.pipeline,
                fingerprint=inventory.fingerprint(survey.checkpoint),
            ),
            {
                workload_of(
                    shape, prompt_tokens=pipeline.prompts.longest, input_images=int(pipeline.needs_image)
                ): probe.observations
                for shape, probe in zip(shapes, probed, strict=True)
            },
            parts,
            machine_now(loaded, settings),
            link,
            provenance=_provenance(loaded, pairs, parts),
            extrapolated=any(work(measured) != work(shape) for shape, measured in pairs),
        )
    except CalibrationError as error:
        raise StartError(PlacementReason.SPEC_INVALID, str(error)) from error
    return with_room(record)


def with_room(record: CalibrationRecord) -> CalibrationRecord:
    """The record, or the same with the default reserves where nothing fits beside what the allocator likes to take.

    A card on which requests run, if slower, is not too small.
    """
    modest = with_default_reserves(record)
    if modest == record or solve(record).placement is not None or solve(modest).placement is None:
        return record
    most = max(interval.reserve_bytes for interval in record.intervals)
    said = f"no placement leaves the allocator the {for_people(most)} that it takes beside activations where it can"
    return modest.model_copy(update={"provenance": (*record.provenance, f"{said}: it works with less, slower")})


def as_run(
    record: CalibrationRecord, loaded: Loaded, shape: Shape, observations: Sequence[Observation]
) -> CalibrationRecord:
    """The record of the one request that ran, or would run, beside that of the declared ones: of ``shape``, in its
    steps.
    """
    rank, node = record.ranks[0], record.nodes[0]
    machine = replace(
        loaded.machine,
        outside_bytes=rank.outside_bytes,
        host_bytes=node.host_bytes,
        pinnable_bytes=node.pinnable_bytes,
    )
    return build_record(record.model, {workload_of(shape): observations}, record.components, machine, rank.link)


def machine_now(loaded: Loaded, settings: StartSettings) -> Machine:
    """The limits anew, before a plan is made for them: libraries and neighbours have taken memory since."""
    accelerator, ledger, before = loaded.session.accelerator, loaded.session.engine.ledger, loaded.machine
    held = ledger.total(Tier.PINNED) + ledger.total(Tier.PAGEABLE)
    room = host_room(settings, accelerator, read_host(settings), held_bytes=held)
    refused = before.pinnable_bytes < before.host_bytes
    return replace(
        before,
        outside_bytes=accelerator.outside_bytes(),
        host_bytes=room,
        pinnable_bytes=min(room, before.pinnable_bytes) if refused else room,
    )


def _provenance(loaded: Loaded, pairs: Sequence[tuple[Shape, Shape]], parts: Sequence[Component]) -> list[str]:
    """Where the record comes from, in sentences: declared shapes beside what was measured for each."""
    device = loaded.machine.device
    sentences = [f"measured on {loaded.session.accelerator.facts or device} in the seed placement"]
    sentences += [
        f"{shape.name} was watched for {measured.steps} steps, and the passes of {shape.steps} were counted"
        for shape, measured in pairs
        if measured.steps != shape.steps
    ]
    sentences += [f"{part.name} must stay {part.fixed.mode}: {part.fixed.reason}" for part in parts if part.fixed]
    sentences += [
        f"{shape.name} did not fit {device} and is extrapolated from {describe(measured)}"
        for shape, measured in pairs
        if work(measured) != work(shape)
    ]
    return sentences
