"""One measured start on a card that keeps a part; every fault is injected into the later phases of it."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")

from starts import Start, settings_of, start

PROGRAM = Path(__file__).parents[2] / "examples" / "tiny_models.py"


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny Wan checkpoint."""
    spec = importlib.util.spec_from_file_location("tiny_models", PROGRAM)
    assert spec is not None and spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    written: Path = program.write_model("tiny-wan", tmp_path_factory.mktemp("checkpoints") / "tiny-wan")
    return written


@pytest.fixture(scope="session")
def measured(checkpoint: Path) -> Iterator[Start]:
    started = start(settings_of(checkpoint, "40Mi"))
    assert started.phase == "Ready"
    yield started
    started.startup.close()
