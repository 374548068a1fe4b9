"""Making the record: observations of every declared shape, the machine's limits, the link."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stowplan_agent.calibration.errors import CalibrationError
from stowplan_agent.calibration.observation import Observation, timeline_of
from stowplan_api.record import (
    CalibrationRecord,
    Component,
    Interval,
    Link,
    ModelIdentity,
    Node,
    Rank,
    Run,
    Workload,
)


@dataclass(frozen=True)
class Machine:
    """The limits of this pod, in bytes, and its device."""

    node: str
    device: str
    capacity_bytes: int
    outside_bytes: int
    reserve_bytes: int | None
    pinnable_bytes: int
    host_bytes: int


def build_record(
    model: ModelIdentity,
    workloads: Mapping[Workload, Sequence[Observation]],
    components: Sequence[Component],
    machine: Machine,
    link: Link,
    *,
    provenance: Sequence[str] = (),
    extrapolated: bool = False,
) -> CalibrationRecord:
    """One record of one rank. ``extrapolated``: some observations are not of the declared shape itself.

    Raises `CalibrationError` where the shapes' requests do not run the same components in the same order.
    """
    observed = list(workloads.items())
    first = timeline_of(observed[0][1])
    for workload, observations in observed[1:]:
        if timeline_of(observations) != first:
            raise CalibrationError(
                f"shapes {observed[0][0].name} and {workload.name} run different components; declare them apart"
            )
    return CalibrationRecord(
        model=model,
        provenance=tuple(provenance),
        extrapolated=extrapolated,
        workloads=tuple(workload for workload, _ in observed),
        nodes=(Node(name=machine.node, pinnable_bytes=machine.pinnable_bytes, host_bytes=machine.host_bytes),),
        ranks=(
            Rank(
                rank=0,
                node=machine.node,
                device=machine.device,
                capacity_bytes=machine.capacity_bytes,
                outside_bytes=machine.outside_bytes,
                reserve_bytes=machine.reserve_bytes,
                link=link,
            ),
        ),
        components=tuple(components),
        intervals=tuple(
            Interval(
                component=component,
                entry=entry,
                reserve_bytes=max(_taken_beside(observations, index) for _, observations in observed),
                runs=tuple(_run(workload, observations[index]) for workload, observations in observed),
            )
            for index, (component, entry) in enumerate(first)
        ),
    )


def _taken_beside(observations: Sequence[Observation], index: int) -> int:
    """Bytes that the allocator takes in one interval beside all that is in use.

    Its own fragmentation, and at worst all that the largest of the smaller intervals left behind: between weights that
    stay, such a gap is too small for what comes now.
    """
    own = observations[index]
    if not own.fragmentation_bytes:
        return 0
    left = (
        one.activation_bytes + one.fragmentation_bytes
        for one in observations
        if one.activation_bytes < own.activation_bytes
    )
    return own.fragmentation_bytes + max(left, default=0)


def _run(workload: Workload, observation: Observation) -> Run:
    return Run(
        workload=workload.name,
        passes=observation.passes,
        calls=None if observation.calls == observation.passes else observation.calls,
        activation_bytes=(observation.activation_bytes,),
        loose_seconds=observation.loose_seconds,
        layer_seconds=dict(observation.layer_seconds),
    )
