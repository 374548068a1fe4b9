"""``stowplan status``: a namespace in the terminal, live or once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from stowplan_agent.cli.cluster import AllNamespaces, Context, Kubeconfig, Namespace, api_errors, reader_of
from stowplan_agent.cli.output import BAD_INPUT, fail, out, print_json
from stowplan_agent.report.namespace import DeploymentView, deployments_of
from stowplan_agent.report.namespace_view import namespace_json, namespace_view

if TYPE_CHECKING:
    from stowplan_agent.cluster.reader import ClusterReader


def status(
    name: Annotated[str | None, typer.Argument(help="Only this DiffusionDeployment.")] = None,
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    once: Annotated[bool, typer.Option("--once", help="Print it once, as when the output is no terminal.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print it once, for programs.")] = False,
    interval: Annotated[float, typer.Option(help="Seconds between two looks.", min=0.5, max=3600)] = 2.0,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Watch a namespace: deployments, pods, phases, gates, and what lies on each device.

    Ends with Ctrl-C. Exits 2 where the DiffusionDeployment that was named is not there.
    """
    reader, where = reader_of("status", namespace, all_namespaces, kubeconfig, context)
    with api_errors():
        found = _look(reader, name)
    if name is not None and not found:
        fail(f"there is no DiffusionDeployment {name} in {where}; kubectl get dd lists those that there are", BAD_INPUT)
    if json:
        print_json(namespace_json(found))
    elif once or not out.is_terminal:
        out.print(namespace_view(found, where))
    else:
        _watch(lambda: _look(reader, name), found, where, lambda: threading.Event().wait(interval))


def _look(reader: ClusterReader, name: str | None) -> tuple[DeploymentView, ...]:
    lists = reader.read()
    views = deployments_of(lists.deployments, lists.placements, lists.pods, datetime.now(UTC))
    return tuple(view for view in views if name in (None, view.name))


def _watch(
    look: Callable[[], tuple[DeploymentView, ...]],
    found: tuple[DeploymentView, ...],
    where: str,
    pause: Callable[[], object],
) -> None:
    """Look again and again. A look that fails is said below the last one that did not: a cluster may be away."""
    from rich.live import Live

    from stowplan_agent.cluster.client import ApiServerError

    with Live(namespace_view(found, where), console=out, auto_refresh=False, vertical_overflow="visible") as screen:
        while True:
            try:
                pause()
                trouble: list[RenderableType] = []
                try:
                    found = look()
                except ApiServerError as error:
                    trouble = [Text(f"not since the last look: {error}", style="red")]
                screen.update(Group(namespace_view(found, where), *trouble), refresh=True)
            except KeyboardInterrupt:
                return
