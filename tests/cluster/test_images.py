"""The operator's real image, built by its Dockerfile and run by the chart on the local cluster, beside no host mount.

A release check of some minutes: `make images` runs it, other runs skip it and say so.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from cluster.played import Studio, deployment
from cluster.releases import clear, namespaced, remove
from localcluster import chart
from localcluster.built_images import Builder
from localcluster.client import Cluster

NAME = "localhost/stowplan-operator:checked"
OPERATOR = "deployment/stowplan-operator"

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.skipif(os.environ.get("STOWPLAN_IMAGES") != "1", reason="a release check of some minutes: make images"),
]


@pytest.fixture(scope="module")
def builder(local_cluster: Cluster) -> Builder:
    """The operator's image, built and imported into the node."""
    assert local_cluster.local is not None
    builder = Builder(local_cluster.local)
    builder.prepare()
    assert NAME in local_cluster.load_image(builder.build(NAME, "operator/Dockerfile", "operator"))
    return builder


@pytest.fixture(scope="module")
def release(local_cluster: Cluster, builder: Builder) -> Iterator[Cluster]:
    """The chart with that image and otherwise its defaults."""
    repository, tag = NAME.rsplit(":", 1)
    image = {"repository": repository, "tag": tag, "pullPolicy": "Never"}
    clear(local_cluster)
    try:
        chart.install(local_cluster.kubeconfig, {"image": image, "crds": {"keep": False}}, wait=True)
        yield local_cluster
    finally:
        remove(local_cluster)


def test_it_runs_as_nobody_and_says_what_it_is(builder: Builder) -> None:
    assert builder.inspect(NAME, "{{.OCIv1.Config.User}}") == "65532:65532"
    assert builder.inspect(NAME, "{{.OCIv1.Config.Entrypoint}}") == "[python -m stowplan_operator]"
    assert "stowplan-operator" in builder.inspect(NAME, "{{.OCIv1.Config.Labels}}")


def test_it_holds_the_operator_alone(release: Cluster) -> None:
    inside = ("--namespace", chart.NAMESPACE, "exec", OPERATOR, "--", "python", "-c")
    tools = "import shutil; print([name for name in ('pip', 'gcc', 'git', 'curl') if shutil.which(name)])"
    assert release.kubectl(*inside, tools).strip() == "[]"
    find = "from importlib.util import find_spec; print([find_spec(name) for name in ('stowplan_agent', 'torch')])"
    assert release.kubectl(*inside, find).strip() == "[None, None]"


def test_a_deployment_is_served_by_it(release: Cluster) -> None:
    with namespaced(release, "test-images") as studio:
        assert isinstance(studio, Studio)
        studio.apply(deployment("tiny"))
        pod = studio.running_pod()
        studio.agent_says(pod, "True")
        studio.wait_gate(pod, "True")
        studio.wait_condition("dd/tiny", "Ready", "True")
    said = release.kubectl("--namespace", chart.NAMESPACE, "logs", OPERATOR)
    assert "Traceback" not in said
