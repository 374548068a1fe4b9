"""From a command line to a spec: shapes, quantities, and one sentence that names the option for each bad one."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from stowplan_agent.cli import app
from stowplan_agent.cli.calibrate import unwritable, write_whole
from stowplan_agent.cli.output import exit_code
from stowplan_agent.cli.specification import local_spec, parse_shape
from stowplan_api.contract import PlacementReason
from stowplan_api.model import ContractError


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("832x480x81@40", ("832x480x81", 832, 480, 81, 40)),
        ("1024x1024", ("1024x1024", 1024, 1024, 1, 20)),
        ("portrait=480x832@28", ("portrait", 480, 832, 1, 28)),
    ],
)
def test_shapes(text: str, shape: tuple[str, int, int, int, int]) -> None:
    parsed = parse_shape(text)
    assert tuple(parsed[field] for field in ("name", "width", "height", "frames", "steps")) == shape


@pytest.mark.parametrize(
    "text", ["", "832", "832x", "x480", "832x480x", "832x480@", "-832x480", "832x480x81x2", "a b=8x8"]
)
def test_what_is_no_shape_is_quoted_with_two_examples(text: str) -> None:
    with pytest.raises(ValueError, match="write 832x480x81@40 or 1024x1024@28") as caught:
        parse_shape(text)
    assert repr(text) in str(caught.value)


def spec_of(shape: str = "64x64x5@4", **options: str | None) -> object:
    texts = {"dtype": "float32", "device_memory": None, "device_reserve": None, "host_memory": None} | options
    return local_spec(Path("/models/wan"), [shape], **texts)  # type: ignore[arg-type]


def test_a_spec_of_options() -> None:
    spec = local_spec(
        Path("/models/wan"), ["64x64x5@4", "32x32@2"], dtype="float16", device_memory="24Gi", device_reserve="1Gi",
        host_memory="64Gi", port=8080,
    )  # fmt: skip
    assert (spec.model.source, spec.model.dtype) == ("file:///models/wan", "float16")
    assert [shape.name for shape in spec.workload.shapes] == ["64x64x5", "32x32"]
    assert (spec.resources.device_memory, spec.resources.memory) == (24 << 30, 64 << 30)
    assert (spec.residency.device_reserve, spec.serving.port) == (1 << 30, 8080)


def test_options_left_out_are_left_to_the_machine() -> None:
    spec = local_spec(
        Path("/models/wan"), ["64x64x5@4"], dtype="bfloat16", device_memory=None, device_reserve=None, host_memory=None
    )
    assert spec.resources.device_memory is None
    assert spec.residency.device_reserve is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"device_memory": "-1Gi"}, ("--device-memory", "negative")),
        ({"device_reserve": "lots"}, ("--device-reserve", "'lots'", "24Gi")),
        ({"host_memory": "10Ei"}, ("--host-memory", "out of range")),
        ({"host_memory": "100Ti"}, ("memory",)),
        ({"host_memory": "0"}, ("memory", "1")),
        ({"dtype": "int8"}, ("model.dtype", "bfloat16", "int8")),
        ({"shape": "8x64"}, ("width", "16")),
        ({"shape": "64x20000"}, ("height", "16384")),
        ({"shape": "64x64x0"}, ("frames", "1")),
        ({"shape": "64x64@9999"}, ("steps", "1000")),
    ],
)
def test_bad_options(options: dict[str, str], words: tuple[str, ...]) -> None:
    with pytest.raises(ContractError) as caught:
        spec_of(**options)
    for word in words:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("shapes", [["64x64x5@4", "64x64x5@8"], ["a=64x64", "a=32x32"], ["64x64", "64x64"]])
def test_shapes_of_one_name_are_refused(shapes: list[str]) -> None:
    name = shapes[0].split("@")[0].split("=")[0]
    with pytest.raises(ContractError, match=f"two shapes are called {name}; give each a name, as in slow="):
        local_spec(
            Path("/models/wan"), shapes, dtype="float32", device_memory=None, device_reserve=None, host_memory=None
        )


@pytest.mark.parametrize("command", ["calibrate", "agent"])
def test_help_shows_the_whole_form_of_a_shape(command: str) -> None:
    shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).stdout
    assert "WIDTHxHEIGHT[xFRAMES][@STEPS]" in shown


def test_a_record_is_there_whole_or_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text("before")
    with pytest.raises(UnicodeEncodeError):
        write_whole(path, "half \ud800")
    assert path.read_text() == "before" and list(tmp_path.iterdir()) == [path]
    write_whole(path, "after")
    assert path.read_text() == "after" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("path", "problem"),
    [("r.json", None), ("nowhere/r.json", "make it first"), (".", "it is a folder"), ("/dev/null", None)],
)
def test_where_a_record_cannot_be_written_is_known_before(path: str, problem: str | None, tmp_path: Path) -> None:
    said = unwritable(tmp_path / path)
    assert said is None if problem is None else problem in (said or "")


def test_a_file_that_is_read_is_not_written_over(tmp_path: Path) -> None:
    record, link, other = tmp_path / "r.json", tmp_path / "link.json", tmp_path / "other.json"
    record.write_text("minutes of a card")
    other.write_text("an answer of yesterday")
    link.symlink_to(record)
    for path in (record, link, tmp_path / "." / "r.json"):
        assert "a file that this command reads" in (unwritable(path, None, record) or "")
    assert unwritable(other, None, record) is None
    assert unwritable(record, tmp_path / "missing.json") is None


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (PlacementReason.MODEL_INVALID, 2),
        (PlacementReason.SPEC_INVALID, 2),
        (PlacementReason.INFEASIBLE, 3),
        (PlacementReason.OUT_OF_MEMORY, 3),
        (PlacementReason.FAILED, 1),
    ],
)
def test_exit_codes(reason: PlacementReason, code: int) -> None:
    assert exit_code(reason) == code
