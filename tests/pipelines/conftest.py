"""The tiny real checkpoints, built once a session, and what every test on them needs: no network, one thread."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from pipelines import image_to_video_models, ltx_models, unet_and_causal_models

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

from pipelines.stored_starts import Earlier, Starts, left_by_a_cold_start

PROGRAM = Path(__file__).parents[2] / "examples" / "tiny_models.py"


@pytest.fixture(scope="session")
def tiny_models() -> ModuleType:
    """The program ``examples/tiny_models.py`` as a module."""
    spec = importlib.util.spec_from_file_location("tiny_models", PROGRAM)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def write_tiny(tiny_models: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A function from a model's name to its checkpoint, written on first use. Tests must not change the files."""
    folder = tmp_path_factory.mktemp("checkpoints")
    for more in (unet_and_causal_models, ltx_models, image_to_video_models):
        tiny_models.MODELS.update(more.models(tiny_models))

    def write(name: str) -> Path:
        target = folder / name
        return target if target.exists() else tiny_models.write_model(name, target)

    return write


@pytest.fixture(scope="session")
def tiny_wan(write_tiny: Callable[[str], Path]) -> Path:
    return write_tiny("tiny-wan")


@pytest.fixture(scope="session")
def tiny_wan_two_experts(write_tiny: Callable[[str], Path]) -> Path:
    return write_tiny("tiny-wan-two-experts")


@pytest.fixture(scope="session")
def tiny_flux(write_tiny: Callable[[str], Path]) -> Path:
    return write_tiny("tiny-flux")


@pytest.fixture(scope="session")
def earlier(tiny_wan: Path, tmp_path_factory: pytest.TempPathFactory) -> Earlier:
    """What a cold start left for others."""
    return left_by_a_cold_start(tiny_wan, tmp_path_factory.mktemp("records"))


@pytest.fixture
def records(earlier: Earlier, tmp_path: Path) -> Path:
    """A directory with that."""
    folder = tmp_path / "records"
    folder.mkdir()
    (folder / earlier.name).write_text(earlier.text)
    return folder


@pytest.fixture
def until(earlier: Earlier, records: Path) -> Iterator[Starts]:
    """Run a start in that directory until a phase is done."""
    starts = Starts(earlier.path, records)
    yield starts
    starts.close()
