"""A plan's reasons for people and for programs: what was chosen, what it was chosen over, and what decided.

The words are the planner's own (`Plan.explanations`); here they are only laid out, so that a person can read them in a
terminal of 80 columns and a program can pick one component.
"""

from __future__ import annotations

from typing import Any

from rich.table import Table

from stowplan_api.plan import Plan


def explanation_json(model: str, plan: Plan, component: str | None = None) -> dict[str, Any]:
    """The reasons of ``plan`` as plain JSON, of one ``component`` if given. Seconds and bytes, as in the plan.

    ``worth`` is what one more GiB would save; ``shortfalls`` and ``wouldFit`` are filled when nothing fits.
    """
    return {
        "kind": "Explanation",
        "model": model,
        "plan": plan.id,
        "status": plan.status,
        "seconds": plan.cost.seconds if plan.cost else None,
        "components": [one.to_json() for one in plan.explanations if component in (None, one.component)],
        "worth": plan.worth.to_json() if plan.worth else None,
        "shortfalls": [one.to_json() for one in plan.shortfalls],
        "wouldFit": [one.to_json() for one in plan.would_fit],
        **({"estimate": plan.estimate} if plan.estimate else {}),
    }


def explanation_table(model: str, plan: Plan, component: str | None = None) -> Table:
    """Three rows a component: where it is, the best option it lost, and the limit or the seconds that decided."""
    seconds = f": {plan.cost.seconds:.4g} s a request" if plan.cost else ""
    table = Table(title=f"{model}{seconds}")
    for heading in ("component", "", "in words"):
        table.add_column(heading, overflow="fold")
    for one in plan.explanations:
        if component not in (None, one.component):
            continue
        table.add_row(one.component, "chosen", one.chosen)
        if one.lost is not None:
            table.add_row("", "not", one.lost)
        table.add_row("", "because", one.because, end_section=True)
    return table


def infeasible_lines(model: str, plan: Plan) -> list[str]:
    """Where nothing fits: what is short, and each smallest change that would do; or that no move leads to what fits."""
    reason = plan.proof.get("reason")
    first = f"{model}: {reason}." if reason else f"{model}: no placement fits."
    return [
        first,
        *(f"  short: {violation.message}" for violation in plan.shortfalls),
        *(f"  would fit: {change.message}" for change in plan.would_fit),
    ]


def workload_lines(plan: Plan) -> list[str]:
    """The seconds of each workload, where there are several; the title has their average by weight."""
    seconds = plan.cost.workload_seconds if plan.cost else {}
    if len(seconds) < 2:
        return []
    return [f"Workload {name}: {taken:.4g} s a request." for name, taken in seconds.items()]


def move_lines(plan: Plan) -> list[str]:
    """The moves in a safe order, and what is lost where no order leads to the best placement."""
    lines = []
    if "withoutMovesSeconds" in plan.proof and plan.cost:
        best = plan.proof["withoutMovesSeconds"]
        lines.append(
            f"A request of {best:.4g} s would fit, but no order of moves from the current placement stays within "
            f"limits on the way to it; this is the best that one leads to."
        )
    if plan.saved_seconds is not None and plan.current_seconds is not None:
        saved = f"this saves {plan.saved_seconds:.4g} s of" if plan.moves else "nothing moves:"
        lines.append(f"Against the current placement {saved} {plan.current_seconds:.4g} s a request.")
    for number, move in enumerate(plan.moves, 1):
        before = move.from_.mode if move.from_ else "nothing"
        lines.append(f"Move {number}: {move.component}, {before} to {move.to.mode}")
    return lines


def worth_lines(plan: Plan) -> list[str]:
    """What one more GiB of device and of host memory is worth, one sentence each; nothing where it is unknown."""
    if plan.worth is None:
        return []
    known = (
        ("device memory on every card", plan.worth.device_seconds_per_gib),
        ("host memory in every node", plan.worth.host_seconds_per_gib),
    )
    return [
        f"One more GiB of {what} {f'saves {saved:.4g} s' if saved > 0 else 'saves nothing'} a request."
        for what, saved in known
        if saved is not None
    ]
