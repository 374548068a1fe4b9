"""A real size on any machine: bytes as measured on a real card, and refusals before a byte of a weight is read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipelines.real_size import write_wan_14b
from starts import settings_of, start
from stowplan_agent.cli import app
from stowplan_agent.inventory import Inventory, inventory_as_loaded, read_checkpoint
from stowplan_api.record import CalibrationRecord

GIB = 1 << 30
MEASURED = Path(__file__).parents[1] / "unit" / "planning" / "records" / "hard-4-two-experts-48gib.json"
SHAPE = ["832x480x81@40"]


@pytest.fixture(scope="session")
def wan_14b(write_tiny: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("real") / "wan-14b"
    return write_wan_14b(folder, write_tiny("tiny-wan-two-experts"))


@pytest.fixture(scope="session")
def inventory(wan_14b: Path) -> Inventory:
    return inventory_as_loaded(read_checkpoint(wan_14b), "bfloat16")


def read_so_far() -> int:
    """Bytes that this process has asked the kernel for; reads of mapped files come in as faults, counted below."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["rchar"])


def resident() -> int:
    line = next(one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


def test_layers_are_as_large_as_a_record_of_this_size_has_them(inventory: Inventory) -> None:
    """Within a thousandth: the record was made of a denoiser with another set of norms in float32."""
    record = CalibrationRecord.read(MEASURED)
    for name in ("transformer", "transformer_2"):
        (found,) = next(part.groups for part in inventory.components if part.name == name)
        (measured,) = record.component(name).groups
        assert (found.name, len(found.layer_bytes)) == (measured.name, len(measured.layer_bytes))
        assert found.layer_bytes == pytest.approx(measured.layer_bytes, rel=1e-3)


def test_no_byte_of_a_weight_is_read(wan_14b: Path, inventory: Inventory) -> None:
    """63 GiB on disk: the second inventory reads headers and configs, and takes no memory that stays."""
    disk = sum(file.stat().st_size for file in wan_14b.rglob("*.safetensors"))
    taken = sum(file.stat().st_blocks * 512 for file in wan_14b.rglob("*.safetensors"))
    assert disk > 100 * GIB and taken < 16 << 20
    before, held = read_so_far(), resident()
    again = inventory_as_loaded(read_checkpoint(wan_14b), "bfloat16")
    assert again == inventory
    assert read_so_far() - before < 8 << 20
    assert resident() - held < 512 << 20


@pytest.mark.parametrize(
    ("card", "limit", "says"),
    [
        ("2Gi", 400 * GIB, "does not fit Emulated 2 GiB: "),
        ("40Gi", 8 * GIB, "the pod's memory limit (8 GiB) leaves "),
    ],
)
def test_h10_a_start_is_refused_with_the_limit_before_a_weight_is_read(
    wan_14b: Path, inventory: Inventory, card: str, limit: int, says: str
) -> None:
    before, held = read_so_far(), resident()
    started = start(settings_of(wan_14b, card, shapes=SHAPE, memory_limit=limit))
    started.startup.close()
    assert (started.phase, started.phases) == ("Failed", ["Inventory"])
    assert started.condition("Calibrated").reason == "OutOfMemory"
    assert says in started.error, started.error
    assert read_so_far() - before < 16 << 20
    assert resident() - held < 512 << 20


def test_the_command_refuses_with_the_limit_and_says_what_there_is(wan_14b: Path) -> None:
    def run(*arguments: str) -> tuple[int, dict[str, object], str]:
        done = CliRunner().invoke(app, ["inventory", str(wan_14b), "--output", "json", *arguments])
        return done.exit_code, json.loads(done.stdout), done.stderr

    code, value, _ = run("--device-memory", "24Gi", "--host-memory", "96Gi")
    assert (code, value["refusal"]) == (0, None)
    assert value["host"] == {
        "limit": "--host-memory", "limitBytes": 96 * GIB, "usedBytes": 0, "headroomBytes": 96 * GIB,
        "reserveBytes": 96 * GIB // 20, "pinBudgetBytes": 96 * GIB - 96 * GIB // 20,
    }  # fmt: skip
    code, value, said = run("--device-memory", "24Gi", "--host-memory", "32Gi")
    assert code == 3
    assert "of host memory, and --host-memory (32 GiB) leaves 32 GiB; raise it by " in said
    assert str(value["refusal"]) in said.replace("\n", " ")
    code, value, said = run("--device-memory", "2Gi")
    assert code == 3 and "does not fit a device of 2 GiB: " in said
