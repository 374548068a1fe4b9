"""What commands share that ask a cluster: whose, which namespace, and one sentence where that fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from stowplan_agent.cli.output import WENT_WRONG, fail

if TYPE_CHECKING:
    from stowplan_agent.cluster.reader import ClusterReader

Namespace = Annotated[
    str | None, typer.Option("--namespace", "-n", help="Namespace; that of the context if not given.")
]
AllNamespaces = Annotated[bool, typer.Option("--all-namespaces", "-A", help="All namespaces.")]
Kubeconfig = Annotated[str | None, typer.Option(help="Path of a kubeconfig; else KUBECONFIG, else the usual one.")]
Context = Annotated[str | None, typer.Option(help="Context of the kubeconfig.")]


def reader_of(
    command: str, namespace: str | None, every: bool, kubeconfig: str | None, context: str | None
) -> tuple[ClusterReader, str]:
    """A reader of the cluster, and what it reads in words. Ends the command where there is none."""
    try:
        from stowplan_agent.cluster.reader import ClusterReader, open_cluster
    except ModuleNotFoundError as error:
        if (error.name or "stowplan").startswith("stowplan"):
            raise
        fail(f"{command} needs {error.name}, which the bare install leaves out; run: pip install 'stowplan[cluster]'")
    with api_errors():
        configuration, usual = open_cluster(kubeconfig, context)
    chosen = None if every else namespace or usual
    return ClusterReader(configuration, chosen), "any namespace" if chosen is None else f"namespace {chosen}"


@contextmanager
def api_errors() -> Iterator[None]:
    """Turn a call that failed into one sentence and exit code 1."""
    from stowplan_agent.cluster.client import ApiServerError

    try:
        yield
    except ApiServerError as error:
        fail(str(error), WENT_WRONG)
