"""The agent's real image, without its heaviest layer: built by its Dockerfile, and serving on the local cluster.

The layer that is left out (EXTRAS="", 6 GiB of torch and what goes with it) is mounted from this machine's environment,
at PYTHONPATH. Everything else is the image's own: interpreter, user, read-only root, scratch space, entry point, and
the product itself. A release check of some minutes, as `test_images.py` is: `make images` runs it.
"""

from __future__ import annotations

import os
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.played import ROOT, Studio
from cluster.releases import clear, namespaced, remove
from localcluster import chart
from localcluster.built_images import Builder
from localcluster.client import Cluster
from localcluster.host_python import HostPython

NAME = "localhost/stowplan-agent:checked"
MODEL = "tiny-wan"
OWN = "/opt/stowplan"
LIBRARIES = "/libraries"

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.skipif(os.environ.get("STOWPLAN_IMAGES") != "1", reason="a release check of some minutes: make images"),
]


@pytest.fixture(scope="module")
def builder(local_cluster: Cluster) -> Builder:
    """The image, built and imported into the node."""
    assert local_cluster.local is not None
    builder = Builder(local_cluster.local)
    builder.prepare()
    assert NAME in local_cluster.load_image(builder.build(NAME, "node_agent/Dockerfile", "", EXTRAS=""))
    return builder


@pytest.fixture(scope="module")
def release(local_cluster: Cluster, builder: Builder, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The chart with that image for every serving pod, libraries and a tiny checkpoint mounted."""
    models = tmp_path_factory.mktemp("models")
    subprocess.run(
        [HostPython.here().python, ROOT / "examples/tiny_models.py", MODEL, models / MODEL],
        check=True,
        capture_output=True,
    )
    for folder in (models, *models.parents):
        if folder.is_relative_to(tmp_path_factory.getbasetemp().parent):
            folder.chmod(0o755)  # pytest's folders are for their owner only, and pods run as somebody else
    mounts = {LIBRARIES: Path(sysconfig.get_paths()["purelib"]), "/models": models}
    repository, tag = NAME.rsplit(":", 1)
    server = {
        "name": "server",
        # The image's own packages come first: what is mounted has an editable installation of this tree as well.
        "env": [{"name": "PYTHONPATH", "value": f"{OWN}/lib/python3.11/site-packages:{LIBRARIES}"}],
        "volumeMounts": [{"name": f"host-{n}", "mountPath": at, "readOnly": True} for n, at in enumerate(mounts)],
    }
    volumes = [{"name": f"host-{n}", "hostPath": {"path": str(path)}} for n, path in enumerate(mounts.values())]
    agent = {
        "image": {"repository": repository, "tag": tag, "pullPolicy": "Never"},
        "podTemplate": {"spec": {"dnsPolicy": "Default", "volumes": volumes, "containers": [server]}},
    }
    values: dict[str, Any] = HostPython.here().chart_values() | {"agent": agent, "crds": {"keep": False}}
    clear(local_cluster)
    try:
        chart.install(local_cluster.kubeconfig, values, wait=True)
        yield local_cluster
    finally:
        remove(local_cluster)


def test_it_runs_as_nobody_and_says_what_it_is(builder: Builder) -> None:
    assert builder.inspect(NAME, "{{.OCIv1.Config.User}}") == "65532:65532"
    assert builder.inspect(NAME, "{{.OCIv1.Config.Entrypoint}}{{.OCIv1.Config.Cmd}}") == "[stowplan][agent]"
    assert "stowplan-agent" in builder.inspect(NAME, "{{.OCIv1.Config.Labels}}")


def test_a_pod_of_it_measures_plans_and_becomes_ready(release: Cluster) -> None:
    with namespaced(release, "test-agent-image") as studio:
        assert isinstance(studio, Studio)
        studio.apply(yaml.safe_load((ROOT / "examples" / f"{MODEL}.yaml").read_text()))
        studio.kubectl("wait", "--for=condition=Ready", f"dd/{MODEL}", "--timeout=400s")
        (pod,) = studio.pods()
        inside = ("exec", pod["metadata"]["name"], "--")
        assert studio.kubectl(*inside, "id", "-u").strip() == "65532"
        where = "import stowplan_agent, sys; print(stowplan_agent.__file__, sys.prefix)"
        assert studio.kubectl(*inside, "python", "-c", where).split() == [
            f"{OWN}/lib/python3.11/site-packages/stowplan_agent/__init__.py",
            OWN,
        ]
        tools = "import shutil; print([name for name in ('pip', 'gcc', 'git', 'curl') if shutil.which(name)])"
        assert studio.kubectl(*inside, "python", "-c", tools).strip() == "[]"
