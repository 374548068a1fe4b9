"""The command line: ``python -m localcluster COMMAND``. Results go to standard output, progress to standard error."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from localcluster import build, cluster, images, process, residue
from localcluster.errors import ClusterError
from localcluster.host_python import SERVER_CONTAINER, HostPython
from localcluster.layout import Layout
from localcluster.versions import KUBERNETES, KWOK


def parser() -> argparse.ArgumentParser:
    """Every command with its options."""
    root = argparse.ArgumentParser(
        prog="localcluster", description="A real single-node Kubernetes on this machine, for tests and demos."
    )
    commands = root.add_subparsers(dest="command", required=True)
    command = commands.add_parser("build", help="install and build what is missing")
    command.add_argument("--kwok", action="store_true", help="KWOK as well")
    command = commands.add_parser("start", help="start the cluster, or do nothing when it runs")
    command.add_argument("--kubeconfig", type=Path, help="also write the administrator's kubeconfig there")
    commands.add_parser("stop", help="end the cluster and remove all it put on the machine but its logs")
    commands.add_parser("status", help="what runs; exit status 1 when the cluster does not")
    command = commands.add_parser("load-image", help="import an OCI or docker-save archive into the node")
    command.add_argument("archive", type=Path)
    command = commands.add_parser("logs", help="the end of each component's log")
    command.add_argument("component", nargs="?", help="this one only")
    command.add_argument("--lines", type=int, default=process.TAIL_LINES)
    command = commands.add_parser("programs", help="print the directory of kubectl and the other programs")
    command.add_argument("--kwok", action="store_true", help="KWOK's instead")
    command = commands.add_parser("host-python", help="print the override that runs this Python in a pod, as JSON")
    command.add_argument("--container", default=SERVER_CONTAINER, help="the container it is for")
    command.add_argument("--mount", type=Path, action="append", default=[], help="mount this path too")
    command.add_argument(
        "--chart", action="store_true", help="as values of the chart, for the operator and all serving pods"
    )
    return root


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit status."""
    options = parser().parse_args(arguments)
    try:
        return _run(options, Layout.from_environment())
    except ClusterError as error:
        print(f"localcluster: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("localcluster: interrupted", file=sys.stderr)
        return 130


def _run(options: argparse.Namespace, layout: Layout) -> int:
    match options.command:
        case "build":
            print(cluster.prepare(layout, kwok=options.kwok))
        case "start":
            cluster.start(layout, options.kubeconfig)
            print(options.kubeconfig or layout.kubeconfig)
        case "stop":
            cluster.stop(layout)
        case "status":
            return _status(layout)
        case "load-image":
            print("\n".join(images.load(layout, options.archive)))
        case "logs":
            _logs(layout, options.component, options.lines)
        case "programs":
            print(build.ensure(layout, KWOK if options.kwok else KUBERNETES))
        case "host-python":
            _host_python(options)
    return 0


def _status(layout: Layout) -> int:
    state = cluster.status(layout)
    for name, alive in state.components.items():
        print(f"{name:<24} {'running' if alive else 'ended'}")
    print(f"{'node':<24} {'Ready' if state.node_ready else 'not Ready'}")
    if not any(state.components.values()) and residue.has_state(layout):
        for thing in residue.leftovers(layout):
            print(f"left over: {thing}")
    return 0 if state.running else 1


def _logs(layout: Layout, component: str | None, lines: int) -> None:
    names = [component] if component else sorted(path.stem for path in layout.logs.glob("*.log"))
    if not names or not all(layout.log(name).exists() for name in names):
        raise ClusterError(f"There is no log of {component or 'any component'} in {layout.logs}.")
    for name in names:
        print(process.tail(layout, name, lines))


def _host_python(options: argparse.Namespace) -> None:
    here = HostPython.here(extra=options.mount)
    values = here.chart_values() if options.chart else here.pod_template(options.container)
    print(json.dumps(values, indent=2))


if __name__ == "__main__":
    sys.exit(main())
