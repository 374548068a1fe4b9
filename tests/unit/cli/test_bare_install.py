"""What works without the extras: the contract, the planner, the inventory; and what the rest says of what it lacks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

RECORD = Path(__file__).parents[1] / "planning" / "records" / "small" / "both-05.json"
EXTRAS = "accelerate av diffusers fastapi kopf kubernetes prometheus_client safetensors tokenizers torch transformers"
BARE = f"""
import sys
from importlib.abc import MetaPathFinder
class Absent(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in {EXTRAS.split()}:
            raise ModuleNotFoundError("No module named " + repr(name), name=name)
sys.meta_path.insert(0, Absent())
from stowplan_agent.cli import app
app()
"""


def _bare(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", BARE, *arguments], capture_output=True, text=True, check=False)


def test_plans_and_prices_without_torch(tmp_path: Path) -> None:
    planned = _bare("plan", str(RECORD), "--output", "json")
    assert planned.returncode == 0, planned.stderr
    assert '"Optimal"' in planned.stdout


@pytest.mark.parametrize("command", [("calibrate", "x", "--shape", "64x64"), ("agent", "x", "--shape", "64x64")])
def test_what_needs_an_extra_says_which(command: tuple[str, ...]) -> None:
    done = _bare(*command)
    assert done.returncode == 2
    assert "the bare install leaves out; run: pip install 'stowplan[agent]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", [("status",), ("explain", "dd/wan22")])
def test_what_asks_a_cluster_needs_its_client_only(command: tuple[str, ...]) -> None:
    done = _bare(*command)
    assert done.returncode == 2
    assert "needs kubernetes, which the bare install leaves out; run: pip install 'stowplan[cluster]'" in done.stderr
