"""The examples, each of a real model: sizes it takes, memory that holds it, and pods that Kubernetes accepts.

The sizes of the models are written down here and nowhere else: an example must not ask for less than what its model is.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from stowplan_api.contract import READINESS_GATE
from stowplan_api.diffusion_deployment import DiffusionDeploymentSpec
from stowplan_api.objects import DiffusionDeployment
from stowplan_operator.render import children, read_spec
from stowplan_operator.render.deadlines import progress_deadline_seconds
from stowplan_operator.settings import Settings

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.yaml"))
KUBERNETES = "1.34"
BYTES = 2
"""Of a parameter in bfloat16."""
HOST_ROOM_PERCENT = 20
"""Beside the weights: the process, staging, one request's pictures, and what the agent keeps free."""


@dataclass(frozen=True)
class Family:
    """What a pipeline takes, and how large it is."""

    source: str
    side: int
    """Width and height are multiples of it: scale of the VAE x patch of the transformer."""
    temporal: int
    """Frames are temporal x n + 1; 0 makes images."""
    billions: tuple[float, ...]
    """Parameters of each component of weight: denoisers, text encoders, VAE."""


FAMILIES = {
    "wan22": Family("hf://Wan-AI/Wan2.2-T2V-A14B-Diffusers", 16, 4, (14.3, 14.3, 5.7, 0.13)),
    "wan22-5b": Family("hf://Wan-AI/Wan2.2-TI2V-5B-Diffusers", 32, 4, (5.0, 5.7, 0.7)),
    "flux": Family("hf://black-forest-labs/FLUX.1-dev", 16, 0, (11.9, 4.8, 0.12, 0.08)),
    "flux2": Family("hf://black-forest-labs/FLUX.2-dev", 16, 0, (32.2, 24.0, 0.08)),
    "qwen-image": Family("hf://Qwen/Qwen-Image", 16, 0, (20.4, 8.3, 0.13)),
    "ltx2": Family("hf://Lightricks/LTX-2", 32, 8, (18.9, 12.2, 1.5, 1.3)),
    "hunyuan-video": Family("hf://hunyuanvideo-community/HunyuanVideo", 16, 4, (12.8, 8.0, 0.12, 0.25)),
}
OF_MODELS = [path for path in EXAMPLES if not path.stem.startswith("tiny-")]


def read(path: Path) -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return data


def spec_of(path: Path) -> DiffusionDeploymentSpec:
    return DiffusionDeployment.from_json(read(path), source=path.name).spec


def rendered(path: Path) -> dict[str, dict[str, Any]]:
    """The children of an example by kind, as the operator would apply them."""
    dd = read(path)
    dd["metadata"] |= {"namespace": "studio", "uid": "0c0f2f2e-0000-4000-8000-000000000000", "generation": 1}
    manifests = children(dd, read_spec(dd), Settings(agent_image="stowplan/agent:0.1.0"))
    return {manifest["kind"]: manifest for manifest in manifests}


def test_every_model_has_its_example() -> None:
    assert {path.stem for path in OF_MODELS} == set(FAMILIES)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_called_like_its_file_and_explains_itself(path: Path) -> None:
    assert read(path)["metadata"]["name"] == path.stem
    assert path.read_text(encoding="utf-8").startswith("# ")


@pytest.mark.parametrize("path", OF_MODELS, ids=lambda path: path.stem)
def test_an_example_declares_sizes_that_its_model_takes(path: Path) -> None:
    family, spec = FAMILIES[path.stem], spec_of(path)
    assert (spec.model.source, spec.model.dtype) == (family.source, "bfloat16")
    for shape in spec.workload.shapes:
        assert (shape.width % family.side, shape.height % family.side) == (0, 0), shape.name
        assert (shape.frames - 1) % family.temporal == 0 if family.temporal else shape.frames == 1, shape.name
    assert all(shape.frames > 1 for shape in spec.workload.shapes) == bool(family.temporal)


@pytest.mark.parametrize("path", OF_MODELS, ids=lambda path: path.stem)
def test_host_memory_holds_the_model_and_not_twice(path: Path) -> None:
    weights = sum(FAMILIES[path.stem].billions) * 1e9 * BYTES
    memory = spec_of(path).resources.memory
    assert weights * (100 + HOST_ROOM_PERCENT) / 100 <= memory <= weights * 2.25


@pytest.mark.parametrize("path", OF_MODELS, ids=lambda path: path.stem)
def test_a_comment_states_the_weights_as_they_are(path: Path) -> None:
    weights = sum(FAMILIES[path.stem].billions) * BYTES
    comment = " ".join(line[2:] for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("# "))
    stated = float(comment.split("about ", 1)[1].split(" GB", 1)[0])
    assert stated == pytest.approx(weights, rel=0.03)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_child_of_an_example_is_valid(path: Path) -> None:
    for manifest in rendered(path).values():
        kubernetes_validate.validate(manifest, KUBERNETES, strict=True)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_c1_host_memory_is_request_and_limit_and_one_gate_closes_the_pod(path: Path) -> None:
    spec, pod = spec_of(path), rendered(path)["Deployment"]["spec"]["template"]["spec"]
    (server,) = pod["containers"]
    assert server["resources"]["requests"] == server["resources"]["limits"]
    assert pod["readinessGates"] == [{"conditionType": READINESS_GATE}]
    gpus = str(spec.resources.gpus) if spec.resources.gpus else None
    assert server["resources"]["limits"].get("nvidia.com/gpu") == gpus
    # Files of a volume in memory are charged to the same limit, so what holds a checkpoint must be on disk.
    assert [volume["emptyDir"] for volume in pod["volumes"] if "emptyDir" in volume] == [{}]


@pytest.mark.parametrize("path", OF_MODELS, ids=lambda path: path.stem)
def test_a_first_start_fits_its_deadline(path: Path) -> None:
    """A download at 1 Gbit/s and the shapes at a tenth of a card's speed fit; a day does not have to be waited for."""
    spec = spec_of(path)
    weights = sum(FAMILIES[path.stem].billions) * 1e9 * BYTES
    assert weights / 125e6 + 600 < progress_deadline_seconds(spec) < 86_400


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_no_example_holds_a_secret(path: Path) -> None:
    assert not any("TOKEN" in variable.name for variable in spec_of(path).serving.env)
    containers = (read(path)["spec"].get("podTemplate") or {}).get("spec", {}).get("containers", [])
    tokens = [entry for container in containers for entry in container.get("env", []) if "TOKEN" in entry["name"]]
    assert all(list(entry["valueFrom"]) == ["secretKeyRef"] for entry in tokens)
