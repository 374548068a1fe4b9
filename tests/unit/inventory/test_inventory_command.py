"""``stowplan inventory``: what it prints, what it refuses, and that the bare install has it too."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from stowplan_agent.cli import app
from unit.cli.test_bare_install import EXTRAS

GIB = 1 << 30
BARE = f"""
import sys
sys.modules.update(dict.fromkeys({EXTRAS.split()}))
from stowplan_agent.cli import app
app()
"""
"""As if the extras were not installed: what is None among the modules can neither be found nor imported."""


def run(folder: Path, *arguments: str) -> Any:
    return CliRunner().invoke(app, ["inventory", str(folder), "--headers-only", *arguments])


def test_the_table_says_layers_need_limit_and_reserve(checkpoint_folder: Path) -> None:
    shown = run(checkpoint_folder, "--host-memory", "64Gi", "--dtype", "float32")
    assert shown.exit_code == 0, shown.output
    said = " ".join(shown.output.split())
    assert "blocks 6" in said
    assert "64 GiB are free under --host-memory (64 GiB); less a reserve of 3.2 GiB, 60.8 GiB for host copies" in said
    assert "for weights, when transformer runs with all layers streamed" in said
    assert "counted by headers alone, as asked" in said


def test_the_json_has_need_host_and_no_refusal(checkpoint_folder: Path) -> None:
    value = json.loads(run(checkpoint_folder, "--output", "json", "--device-memory", "1Gi").output)
    assert value["refusal"] is None
    assert value["need"]["deviceBytes"] == GIB and value["need"]["leastHostBytes"] == 0
    assert value["need"]["leastDeviceBytes"] <= value["totalBytes"]
    assert value["host"]["headroomBytes"] - value["host"]["reserveBytes"] <= value["host"]["pinBudgetBytes"]
    assert sum(part["totalBytes"] for part in value["components"]) == value["totalBytes"]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("--device-memory", "1Ki"), 3, "does not fit a device of 1 KiB: "),
        (
            ("--device-memory", "8Ki", "--host-memory", "1Ki"),
            3,
            "of host memory, and --host-memory (1 KiB) leaves 1 KiB",
        ),
        (("--device-memory", "much"), 2, "--device-memory: "),
        (("--host-memory", "much"), 2, "--host-memory: "),
        (("--dtype", "int4"), 2, "dtype 'int4' is not one of"),
    ],
)
def test_refusals(arguments: tuple[str, ...], code: int, says: str, checkpoint_folder: Path) -> None:
    done = run(checkpoint_folder, *arguments)
    assert done.exit_code == code and says in " ".join(done.output.split()), done.output


def test_the_bare_install_counts_by_headers_and_says_so(checkpoint_folder: Path) -> None:
    command = [sys.executable, "-c", BARE, "inventory", str(checkpoint_folder), "--output", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "for the exact bytes pip install 'stowplan[agent]'" in json.loads(done.stdout)["note"]
