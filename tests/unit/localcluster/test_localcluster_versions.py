"""What is built and under which name: decided by the go.mod files alone."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from localcluster import build
from localcluster.layout import Layout
from localcluster.versions import KUBERNETES, KWOK, Source, required_version, tools

GO_MOD = """\
module example.test/x

require k8s.io/kubernetes v1.34.4

require (
	k8s.io/api v0.34.4 // indirect
	sigs.k8s.io/kwok v0.7.0
)

tool k8s.io/kubernetes/cmd/kubectl

tool (
	k8s.io/kubernetes/cmd/kubelet
	k8s.io/kubernetes/cmd/kube-proxy
)
"""


@pytest.mark.parametrize(
    ("module", "version"),
    [("k8s.io/kubernetes", "v1.34.4"), ("k8s.io/api", "v0.34.4"), ("sigs.k8s.io/kwok", "v0.7.0")],
)
def test_version_is_read_from_line_and_block(module: str, version: str) -> None:
    assert required_version(GO_MOD, module) == version


def test_a_module_that_is_not_required_is_an_error() -> None:
    with pytest.raises(KeyError, match=r"requires no k8s\.io/kube'$"):
        required_version(GO_MOD, "k8s.io/kube")


def test_tools_are_read_from_line_and_block() -> None:
    assert {path.rsplit("/", 1)[1] for path in tools(GO_MOD)} == {"kubectl", "kubelet", "kube-proxy"}


def test_every_staging_module_has_the_version_of_kubernetes() -> None:
    text = (KUBERNETES.directory / "go.mod").read_text()
    staging = [line.split()[3] for line in text.splitlines() if line.startswith("\tk8s.io/") and "=>" in line]
    assert len(staging) > 20
    assert set(staging) == {KUBERNETES.version.replace("v1.", "v0.")}


def test_pinned_sources_name_their_programs() -> None:
    assert set(KUBERNETES.programs) == {
        "kube-apiserver",
        "kube-controller-manager",
        "kube-proxy",
        "kube-scheduler",
        "kubectl",
        "kubelet",
    }
    assert KWOK.programs == ("kwok",)


def _source(directory: Path, version: str = "v1.34.4", sums: str = "a") -> Source:
    directory.mkdir()
    (directory / "go.mod").write_text(GO_MOD.replace("v1.34.4", version))
    (directory / "go.sum").write_text(sums)
    return Source("kubernetes", "k8s.io/kubernetes", directory, ("example.test/version",))


def test_cache_key_changes_with_version_dependencies_flags_and_architecture_only(tmp_path: Path) -> None:
    source = _source(tmp_path / "one")
    key = source.cache_key("amd64")
    assert key.startswith("kubernetes-v1.34.4-amd64-")
    assert _source(tmp_path / "same").cache_key("amd64") == key
    others = {
        source.cache_key("arm64"),
        _source(tmp_path / "version", version="v1.34.5").cache_key("amd64"),
        _source(tmp_path / "sums", sums="b").cache_key("amd64"),
        dataclasses.replace(source, version_packages=()).cache_key("amd64"),
    }
    assert len(others | {key}) == 5


def test_linker_flags_stamp_the_version() -> None:
    assert "-X k8s.io/component-base/version.gitVersion=v1.34.4" in KUBERNETES.linker_flags
    assert "-X k8s.io/component-base/version.gitMinor=34" in KUBERNETES.linker_flags


def test_an_interrupted_build_is_not_taken_for_a_finished_one(tmp_path: Path) -> None:
    layout = Layout(root=tmp_path / "root", cache=tmp_path / "cache")
    final = build.directory(layout, KUBERNETES)
    partial = final.with_name(final.name + ".partial")
    partial.mkdir(parents=True)
    (partial / "kubelet").write_bytes(b"")
    assert not build.is_built(layout, KUBERNETES)
    partial.rename(final)
    assert build.is_built(layout, KUBERNETES)
