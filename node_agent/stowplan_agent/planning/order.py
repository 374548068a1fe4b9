"""The order of moves as part of the choice: mixed placements on the way from the current one must fit as well.

Every component has one step at which it moves from its current entry to its chosen one. After each step, what is held
is the current bytes of those that have not moved and the chosen bytes of those that have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stowplan_agent.planning.assembly import Assembly, Limits
from stowplan_agent.planning.layout import Layout
from stowplan_agent.planning.price import held_bytes


def add_order(assembly: Assembly, current: Sequence[Layout], limits: Limits) -> None:
    """Require an order of moves from ``current`` (one layout a component) that keeps ``limits`` after every move."""
    model, components = assembly.model, range(len(current))
    moved = [[model.new_bool_var(f"moved.{step}.{c}") for c in components] for step in components]
    for step in components:
        model.add(sum(moved[step]) == step + 1)
        if step:
            for c in components:
                model.add_implication(moved[step - 1][c], moved[step][c])

    def hold(room: int, before: Callable[[int], int], after: Callable[[int], Any]) -> None:
        now = [before(c) for c in components]
        then = [after(c) for c in components]
        most = max(room, sum(now), 0) + 1
        for step in components[:-1]:
            held = []
            for c in components:
                bytes_ = model.new_int_var(0, most, "")
                model.add(bytes_ >= now[c]).only_enforce_if(~moved[step][c])
                model.add(bytes_ >= then[c]).only_enforce_if(moved[step][c])
                held.append(bytes_)
            model.add(sum(held) <= room)

    names = [component.name for component in assembly.record.components]
    for interval, room in enumerate(limits.room):
        hold(
            room,
            lambda c, i=interval: held_bytes(current[c], assembly.timeline, names[c], i),  # type: ignore[misc]
            lambda c, i=interval: assembly.held(c, i),  # type: ignore[misc]
        )
    for node, ranks in enumerate(assembly.ranks_of):
        hold(
            limits.pinnable[node],
            lambda c, r=ranks: sum(current[c].locked[rank] for rank in r),  # type: ignore[misc]
            lambda c, n=node: assembly.locked(c, n),  # type: ignore[misc]
        )
        hold(
            limits.host[node],
            lambda c, r=ranks: sum(current[c].host[rank] for rank in r),  # type: ignore[misc]
            lambda c, n=node: assembly.host(c, n),  # type: ignore[misc]
        )
