"""What the fields of a record must agree on: names that are listed, lists of one length, nothing twice.

Each field alone is checked by its type; here is what only the whole record shows. Every complaint leads to its field.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from stowplan_api.model import FieldError
from stowplan_api.quantity import MOST, for_people

if TYPE_CHECKING:
    from stowplan_api.record import CalibrationRecord, Component, Interval, Run

Path = tuple[str | int, ...]


def check_names(record: CalibrationRecord) -> None:
    """Raises `FieldError` for the first field that contradicts another one."""
    _once(("workloads",), "name", "workload", (one.name for one in record.workloads))
    _once(("nodes",), "name", "node", (one.name for one in record.nodes))
    _once(("ranks",), "rank", "rank", (str(one.rank) for one in record.ranks))
    _once(("components",), "name", "component", (one.name for one in record.components))
    nodes = {node.name for node in record.nodes}
    for index, rank in enumerate(record.ranks):
        if rank.node not in nodes:
            raise FieldError(("ranks", index, "node"), _unknown("node", rank.node, "nodes", nodes))
    for index, component in enumerate(record.components):
        _check_component(("components", index), component)
    components = {component.name: component for component in record.components}
    for index, interval in enumerate(record.intervals):
        _check_interval(("intervals", index), interval, record, components)


def _check_component(path: Path, component: Component) -> None:
    _once((*path, "groups"), "name", f"component {component.name}: group", (one.name for one in component.groups))
    if component.total_bytes() > MOST:
        message = f"component {component.name} has more than {for_people(MOST)} of weights; give at most that many"
        raise FieldError(path, message)
    if component.fixed is not None and component.fixed.mode == "Layerwise" and not component.groups:
        message = (
            f"component {component.name} is fixed to Layerwise but has no repeated layers; "
            "fix it to Resident or Offload"
        )
        raise FieldError((*path, "fixed", "mode"), message)


def _check_interval(
    path: Path, interval: Interval, record: CalibrationRecord, components: dict[str, Component]
) -> None:
    if interval.component is not None and interval.component not in components:
        raise FieldError(
            (*path, "component"), _unknown("component", interval.component, "components", components.keys())
        )
    _once((*path, "runs"), "workload", "the run of workload", (run.workload for run in interval.runs))
    component = components[interval.component] if interval.component is not None else None
    workloads = {workload.name for workload in record.workloads}
    for index, run in enumerate(interval.runs):
        where = (*path, "runs", index)
        if run.workload not in workloads:
            raise FieldError((*where, "workload"), _unknown("workload", run.workload, "workloads", workloads))
        if len(run.activation_bytes) != len(record.ranks):
            message = f"{len(run.activation_bytes)} activationBytes for {len(record.ranks)} ranks; give one a rank"
            raise FieldError((*where, "activationBytes"), message)
        _check_layers((*where, "layerSeconds"), run, component)
    if lacking := workloads - {run.workload for run in interval.runs}:
        raise FieldError((*path, "runs"), f"no run of workload {min(lacking)}; give 0 passes where it does not run")


def _check_layers(path: Path, run: Run, component: Component | None) -> None:
    groups = {group.name: group for group in component.groups} if component is not None else {}
    for name, seconds in run.layer_seconds.items():
        if component is None:
            raise FieldError((*path, name), f"group {name} in an interval of no component; leave it out")
        if name not in groups:
            raise FieldError((*path, name), _unknown("group", name, f"component {component.name}", groups.keys()))
        layers = len(groups[name].layer_bytes)
        if len(seconds) != layers:
            raise FieldError((*path, name), f"{len(seconds)} layerSeconds for {layers} layers; give one a layer")


def _unknown(what: str, name: str, place: str, known: Iterable[str]) -> str:
    listed = ", ".join(sorted(known))
    return f"{place} does not list {what} {name}; " + (f"give one of {listed}" if listed else "leave it out")


def _once(path: Path, field: str, what: str, names: Iterable[str]) -> None:
    """Each counts once: what is listed twice would be priced twice."""
    seen: set[str] = set()
    for index, name in enumerate(names):
        if name in seen:
            raise FieldError((*path, index, field), f"{what} {name} is listed twice; list each once")
        seen.add(name)
