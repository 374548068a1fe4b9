"""``stowplan explain dd/NAME``: the reasons of a deployment in a cluster, as its pods wrote them down."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from stowplan_agent.cli.cluster import api_errors, reader_of
from stowplan_agent.cli.output import BAD_INPUT, Output, fail, out, print_json
from stowplan_agent.report.explained_deployment import explained, explained_lines
from stowplan_agent.report.namespace import deployments_of

NAMED: Final = re.compile(r"(?:dd|diffusiondeployments?(?:\.stowplan\.dev)?)/([a-z0-9]([a-z0-9.-]*[a-z0-9])?)")


def named_deployment(text: str) -> str | None:
    """The name in ``dd/NAME`` or a longer form of it; None for anything else."""
    found = NAMED.fullmatch(text)
    return None if found is None else found[1]


def explain_deployment(
    name: str, namespace: str | None, kubeconfig: str | None, context: str | None, output: Output
) -> None:
    """Print why each pod's weights are where they are. Ends the command with exit code 2 where there is no such one."""
    reader, where = reader_of("explain", namespace, False, kubeconfig, context)
    with api_errors():
        lists = reader.read()
    views = deployments_of(lists.deployments, lists.placements, lists.pods, datetime.now(UTC))
    view = next((one for one in views if one.name == name), None)
    if view is None:
        fail(f"there is no DiffusionDeployment {name} in {where}; kubectl get dd lists those that there are", BAD_INPUT)
    found = explained(view, lists.placements)
    if output is Output.JSON:
        print_json(found)
        return
    for line in explained_lines(found):
        out.print(line, soft_wrap=True)
