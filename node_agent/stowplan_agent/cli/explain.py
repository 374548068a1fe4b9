"""``stowplan explain``: why the weights of a record live where they do, component by component."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stowplan_agent.cli.cluster import Context, Kubeconfig, Namespace
from stowplan_agent.cli.explain_deployment import explain_deployment, named_deployment
from stowplan_agent.cli.output import INFEASIBLE, Output, fail, out, print_json, user_errors
from stowplan_agent.cli.plan import DeviceMemory, HostMemory, kind_of, on_machine, placement_in, solved
from stowplan_agent.report.explanation import (
    explanation_json,
    explanation_table,
    infeasible_lines,
    workload_lines,
    worth_lines,
)
from stowplan_api.model import ContractError
from stowplan_api.plan import Plan
from stowplan_api.record import CalibrationRecord


def explain(
    record: Annotated[
        Path, typer.Argument(help="A CalibrationRecord or a Plan, as JSON; or dd/NAME, of a deployment in the cluster.")
    ],
    component: Annotated[str | None, typer.Option(help="Only this component.")] = None,
    device_memory: DeviceMemory = None,
    host_memory: HostMemory = None,
    current: Annotated[Path | None, typer.Option(help="The placement to move from, as for plan.")] = None,
    output: Annotated[Output, typer.Option(help="Form of the output.")] = Output.TABLE,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Say why: what each component lost and to which limit, and what one more GiB is worth. Exits 3 if nothing fits."""
    if (name := named_deployment(str(record))) is not None and not record.exists():
        if component or device_memory or host_memory or current:
            fail(f"{record} is answered as its pods wrote it down; for other machines ask its record: stowplan report")
        explain_deployment(name, namespace, kubeconfig, context, output)
        return
    with user_errors(ContractError):
        if kind_of(record) == "Plan":
            if device_memory or host_memory or current:
                raise ContractError(
                    f"{record} is a Plan, already made for one machine; give its CalibrationRecord to ask about another"
                )
            model, answer = str(record), Plan.read(record)
        else:
            measured = on_machine(CalibrationRecord.read(record), device_memory, host_memory)
            model = measured.model.name
            answer = solved(measured, placement_in(current) if current is not None else None)
        names = [one.component for one in answer.explanations]
        if component is not None and names and component not in names:
            raise ContractError(f"--component: {component} is not in {record}, which has {', '.join(names)}")
    if answer.estimate and output is Output.TABLE:  # before the numbers, or they are read as measured
        out.print(answer.estimate, soft_wrap=True)
    if output is Output.JSON:
        print_json(explanation_json(model, answer, component))
    elif answer.status == "Infeasible":
        for line in infeasible_lines(model, answer):
            out.print(line, soft_wrap=True)
    else:
        out.print(explanation_table(model, answer, component))
        for line in (*workload_lines(answer), *worth_lines(answer)):
            out.print(line, soft_wrap=True)
    if answer.status == "Infeasible":
        raise typer.Exit(INFEASIBLE)
