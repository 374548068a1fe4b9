"""What a placement breaks: one violation for each interval and rank, each node's pins and host bytes, each entry."""

from __future__ import annotations

from stowplan_agent.planning.limits import reserve_bytes
from stowplan_agent.planning.links import have_peers
from stowplan_agent.planning.problems import entry_problems
from stowplan_api.placement import Placement
from stowplan_api.plan import Violation
from stowplan_api.quantity import for_people
from stowplan_api.record import CalibrationRecord


def entry_violations(record: CalibrationRecord, placement: Placement) -> list[Violation]:
    """What is wrong with entries, whatever memory there is."""
    entries = {entry.name: entry for entry in placement.components}
    known = [component.name for component in record.components]
    found = [
        Violation(
            constraint="entry",
            component=name,
            message=f"component {name} is not in the record, which has {', '.join(known)}",
        )
        for name in entries
        if name not in known
    ]
    peers = have_peers(record)
    for component in record.components:
        for problem in entry_problems(component, entries.get(component.name), len(record.ranks), peers=peers):
            found.append(Violation(constraint="entry", component=component.name, message=problem))
    return found


def interval_name(record: CalibrationRecord, index: int) -> str:
    """An interval for people: its component, if any, and its entry."""
    interval = record.intervals[index]
    return f"{interval.component} {interval.entry}" if interval.component else interval.entry


def device_violations(record: CalibrationRecord, device: tuple[tuple[int, ...], ...]) -> list[Violation]:
    """Intervals and ranks (as ``device`` lists them) that hold more than the card less its reserve."""
    found = []
    for index, interval in enumerate(record.intervals):
        for position, rank in enumerate(record.ranks):
            reserve = reserve_bytes(record, interval, rank)
            short = device[index][position] + reserve - rank.capacity_bytes
            if short <= 0:
                continue
            name = interval_name(record, index)
            message = (
                f"interval {index} ({name}) on rank {rank.rank} needs {for_people(device[index][position])} "
                f"and a reserve of {for_people(reserve)}, {short} bytes more than the "
                f"{for_people(rank.capacity_bytes)} there are"
            )
            found.append(
                Violation(
                    constraint="device", interval=index, entry=name, rank=rank.rank, short_bytes=short, message=message
                )
            )
    return found


def node_violations(record: CalibrationRecord, locked: dict[str, int], host: dict[str, int]) -> list[Violation]:
    """Nodes that lock or hold more than they can."""
    found = []
    for node in record.nodes:
        over_pins = locked[node.name] - node.pinnable_bytes
        if over_pins > 0:
            message = (
                f"node {node.name}: {for_people(locked[node.name])} of host memory locked, {over_pins} bytes more than "
                f"the {for_people(node.pinnable_bytes)} that can be pinned"
            )
            found.append(Violation(constraint="pinned", node=node.name, short_bytes=over_pins, message=message))
        over_host = host[node.name] - node.host_bytes
        if over_host > 0:
            message = (
                f"node {node.name}: {for_people(host[node.name])} of host copies, {over_host} bytes more than the "
                f"{for_people(node.host_bytes)} of host memory"
            )
            found.append(Violation(constraint="host", node=node.name, short_bytes=over_host, message=message))
    return found
