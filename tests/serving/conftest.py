"""Two agents for all of these tests, started when first asked for: one makes images, one makes videos."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

from serving.agents import ServedAgent, served_agent

PROGRAM = Path(__file__).parents[2] / "examples" / "tiny_models.py"


@pytest.fixture(scope="session")
def write_tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A function from a model's name to its checkpoint, written on first use."""
    spec = importlib.util.spec_from_file_location("tiny_models", PROGRAM)
    assert spec is not None and spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    folder = tmp_path_factory.mktemp("checkpoints")

    def write(name: str) -> Path:
        target: Path = folder / name
        return target if target.exists() else program.write_model(name, target)

    return write


@pytest.fixture(scope="session")
def image_agent(write_tiny: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedAgent]:
    with served_agent(write_tiny("tiny-flux"), "24Mi", "64x64@2", tmp_path_factory.mktemp("images")) as agent:
        yield agent


@pytest.fixture(scope="session")
def video_agent(write_tiny: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedAgent]:
    with served_agent(write_tiny("tiny-wan"), "40Mi", "32x32x5@2", tmp_path_factory.mktemp("videos")) as agent:
        yield agent


@pytest.fixture(autouse=True)
def tidy(request: pytest.FixtureRequest) -> Iterator[None]:
    """No test leaves a request to the next."""
    yield
    for name in {"image_agent", "video_agent"} & set(request.fixturenames):
        agent: ServedAgent = request.getfixturevalue(name)
        agent.gate.release()
        assert agent.idle()
