"""The chart on a cluster, without the helm program: install, upgrade, uninstall, template, through Helm's own library.

    python -m localcluster.chart install --values values.yaml --namespace stowplan-system
    python -m localcluster.chart template | kubectl apply --dry-run=server -f -

The library reads charts, renders and keeps releases exactly like ``helm``: a release made here can be listed, upgraded
and removed with it. The cluster is the one of ``--kubeconfig``, else of KUBECONFIG, else the local one.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import helm_python as helm
import yaml

CHART = Path(__file__).resolve().parents[2] / "charts" / "stowplan"
RELEASE = "stowplan"
NAMESPACE = "stowplan-system"
Values = Mapping[str, Any]


def template(
    values: Values | None = None, *, release: str = RELEASE, namespace: str = NAMESPACE
) -> list[dict[str, Any]]:
    """The objects that an installation would create, rendered without a cluster; refused values raise."""
    with helm.Chart.load(CHART) as chart:
        chart.validate_schema(dict(values or {}))
        files = chart.render(dict(values or {}), name=release, namespace=namespace)
    return [
        document
        for name, text in sorted(files.items())
        if name.endswith(".yaml")
        for document in yaml.safe_load_all(text)
        if document
    ]


def notes(values: Values | None = None, *, release: str = RELEASE, namespace: str = NAMESPACE) -> str:
    """What an installation would say at its end."""
    with helm.Chart.load(CHART) as chart:
        files = chart.render(dict(values or {}), name=release, namespace=namespace)
    return next(text for name, text in files.items() if name.endswith("NOTES.txt"))


def install(
    kubeconfig: Path,
    values: Values | None = None,
    *,
    release: str = RELEASE,
    namespace: str = NAMESPACE,
    timeout: int = 300,
    wait: bool = True,
    path: Path = CHART,
) -> dict[str, Any]:
    """Install, or upgrade what is installed (values are replaced, not merged); waits until everything is ready.

    Returns Helm's summary. Raises `helm_python.HelmError`; a failed first installation leaves a release that can be
    upgraded or removed, like Helm's own.
    """
    with _connection(kubeconfig, namespace) as connection:
        installed = any(found["name"] == release for found in connection.list(all_states=True))
        act = connection.upgrade if installed else connection.install
        create: dict[str, Any] = {} if installed else {"create_namespace": True}
        waiting = "watcher" if wait else None
        return act(path, release, dict(values or {}), namespace=namespace, timeout=timeout, wait=waiting, **create)


def uninstall(
    kubeconfig: Path, *, release: str = RELEASE, namespace: str = NAMESPACE, timeout: int = 300
) -> dict[str, Any]:
    """Remove a release and wait until its objects are gone; a release that is not there is not an error."""
    with _connection(kubeconfig, namespace) as connection:
        return connection.uninstall(release, timeout=timeout, wait="watcher", ignore_not_found=True)


@contextmanager
def _connection(kubeconfig: Path, namespace: str) -> Iterator[helm.Config]:
    # Client-side throttling is for crowds; one installation of two dozen objects is none.
    connection = helm.Config(kubeconfig_path=kubeconfig, namespace=namespace, qps=100, burst_limit=200)
    try:
        yield connection
    finally:
        connection.close()


def _kubeconfig(named: Path | None) -> Path:
    if named is not None:
        return named
    if os.environ.get("KUBECONFIG"):
        return Path(os.environ["KUBECONFIG"])
    from localcluster.layout import Layout

    return Layout.from_environment().kubeconfig


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m localcluster.chart", description="The chart, without helm.")
    parser.add_argument("action", choices=["install", "uninstall", "template", "notes"])
    parser.add_argument("--values", type=Path, action="append", default=[], help="YAML or JSON file; the last wins")
    parser.add_argument("--release", default=RELEASE)
    parser.add_argument("--namespace", default=NAMESPACE)
    parser.add_argument("--kubeconfig", type=Path)
    parser.add_argument("--timeout", type=int, default=300, help="seconds to wait")
    options = parser.parse_args(arguments)
    where = {"release": options.release, "namespace": options.namespace}
    try:
        values: dict[str, Any] = {}
        for path in options.values:
            values = merged(values, yaml.safe_load(path.read_text(encoding="utf-8")) or {})
        if options.action == "template":
            print(yaml.safe_dump_all(template(values, **where), sort_keys=False), end="")
        elif options.action == "notes":
            print(notes(values, **where))
        elif options.action == "install":
            done = install(_kubeconfig(options.kubeconfig), values, timeout=options.timeout, **where)
            print(f"{options.release}: revision {done['revision']}, {done['status']}")
            print(notes(values, **where))
        else:
            uninstall(_kubeconfig(options.kubeconfig), timeout=options.timeout, **where)
            print(f"{options.release}: uninstalled")
    except (helm.HelmError, OSError, yaml.YAMLError) as error:
        print(f"chart: {error}", file=sys.stderr)
        return 1
    return 0


def merged(below: Values, above: Values) -> dict[str, Any]:
    """Values as Helm merges several files: maps key by key, everything else by the last."""
    result = dict(below)
    for name, value in above.items():
        old = result.get(name)
        result[name] = merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return result


if __name__ == "__main__":
    sys.exit(main())
