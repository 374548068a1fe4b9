"""The cluster that these tests run on: the user's own when KUBECONFIG is set, else a local one made for the session.

Without root or Go the tests are skipped and say why; with CI=true that is a failure: a skip there would hide it.
A cluster that runs already is used and left running; one that this session started is stopped at its end, unless
STOWPLAN_KEEP_CLUSTER=1 asks to keep it for the next session.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.played import Operator, Studio
from localcluster import cluster as local
from localcluster import residue
from localcluster.client import Cluster
from localcluster.layout import Layout

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.cluster)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A reachable cluster, shared by the whole session: a test works in a namespace of its own."""
    layout = Layout.from_environment()
    if (own := Cluster.of_user(os.environ, layout)) is not None:
        yield own
        return
    if (reason := local.obstacle()) is not None:
        _unavailable(f"{reason}; set KUBECONFIG to use a cluster that you have")
    started = local.start(layout)
    yield Cluster.of_layout(layout)
    if started and os.environ.get("STOWPLAN_KEEP_CLUSTER") != "1":
        local.stop(layout)
        assert residue.leftovers(layout) == []


@pytest.fixture(scope="session")
def local_cluster(cluster: Cluster) -> Cluster:
    """The same, for tests whose pods mount this machine's Python or read the API server's log."""
    if cluster.local is None:
        _unavailable("this test needs the local cluster, and KUBECONFIG names another")
    return cluster


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A new namespace in which pods can be made, deleted after the test without waiting for it."""
    name = f"test-{uuid.uuid4().hex[:10]}"
    cluster.kubectl("create", "namespace", name)
    cluster.kubectl("-n", name, "wait", "--for=create", "serviceaccount/default", "--timeout=30s")
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def studio(local_cluster: Cluster, namespace: str) -> Studio:
    """A namespace in which a test plays agents, with the kinds served."""
    return Studio.with_kinds(local_cluster, namespace)


@pytest.fixture
def operator(studio: Studio, tmp_path: Path) -> Iterator[Operator]:
    """The operator as a process here, for that namespace."""
    process = Operator(studio.cluster, studio.namespace, tmp_path / "operator.log")
    process.start()
    yield process
    process.stop()


def _unavailable(reason: str) -> None:
    if os.environ.get("CI") == "true":
        pytest.fail(f"cluster tests cannot run: {reason}", pytrace=False)
    pytest.skip(reason)
