"""A start that fails says which component, why, and what its log says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from localcluster import process, waiting
from localcluster.client import Cluster
from localcluster.errors import ClusterError
from localcluster.layout import Layout


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(root=tmp_path / "root", cache=tmp_path / "cache")


def test_a_component_that_ends_is_an_error_with_the_end_of_its_log(layout: Layout) -> None:
    process.start(layout, "kubelet", [sys.executable, "-c", "import sys; sys.exit('unknown flag: --blue')"])
    with pytest.raises(
        ClusterError, match=r"(?s)^kubelet ended before the node becoming Ready; .*unknown flag: --blue"
    ):
        waiting.until(layout, "kubelet", "the node becoming Ready", lambda: False, deadline_s=60)


def test_a_component_that_never_answers_is_an_error_after_the_deadline(layout: Layout) -> None:
    record = process.start(layout, "etcd", [sys.executable, "-c", "import signal; signal.pause()"])
    try:
        with pytest.raises(ClusterError, match="etcd runs, but answering took longer than 0 s"):
            waiting.until(layout, "etcd", "answering", lambda: False, deadline_s=0)
    finally:
        process.end([record], grace_s=5)


def test_an_address_where_nothing_listens_is_no_answer_and_no_exception() -> None:
    assert not waiting.listens("127.0.0.1", 1)
    assert not waiting.answers("http://127.0.0.1:1/")


def test_kubeconfig_of_the_user_wins_unless_it_is_the_local_clusters_own(layout: Layout, tmp_path: Path) -> None:
    layout.root.mkdir()
    layout.kubeconfig.write_text("local")
    (copy := tmp_path / "copy").write_text("local")
    (users := tmp_path / "users").write_text("another")
    assert Cluster.of_user({}, layout) is None
    assert Cluster.of_user({"KUBECONFIG": str(layout.kubeconfig)}, layout) is None
    assert Cluster.of_user({"KUBECONFIG": str(copy)}, layout) is None
    (bin_directory := tmp_path / "bin").mkdir()
    (kubectl := bin_directory / "kubectl").write_text("#!/bin/sh\n")
    kubectl.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(bin_directory))
        own = Cluster.of_user({"KUBECONFIG": str(users)}, layout)
    assert own is not None
    assert (own.kubeconfig, own.local) == (users, None)
    with pytest.raises(ClusterError, match="your own cluster"):
        own.load_image(tmp_path / "image.tar")
