"""Malformed documents: each field is spoilt in every way, and is refused with its path or priced in finite numbers."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from mutations import mutations
from typer.testing import CliRunner

from stowplan_agent.cli import app
from stowplan_api.model import ContractError, path_text
from stowplan_api.plan import Plan
from stowplan_api.record import CalibrationRecord

GIB = 1 << 30
LINK = {
    "pinnedBytesPerSecond": 25e9,
    "pageableBytesPerSecond": 5e9,
    "latencySeconds": 1e-5,
    "contention": 1.05,
}
RUN = {"passes": 3, "calls": 3, "activationBytes": [GIB, GIB], "looseSeconds": 0.01}
RECORD: dict[str, Any] = {
    "apiVersion": "stowplan.dev/v1alpha1",
    "kind": "CalibrationRecord",
    "model": {"name": "m", "pipeline": "WanPipeline", "fingerprint": "f"},
    "provenance": ["made"],
    "extrapolated": False,
    "workloads": [
        {"name": "clip", "weight": 2, "width": 64, "height": 64, "frames": 5, "steps": 2, "batch": 1, "guidance": 3.5,
         "flowShift": 5, "promptTokens": 512, "inputImages": 0, "tiling": False, "lora": "x"},
        {"name": "film", "weight": 1, "width": 64, "height": 64, "steps": 2},
    ],
    "nodes": [{"name": "n", "pinnableBytes": 3 * GIB, "hostBytes": 8 * GIB}],
    "ranks": [
        {"rank": rank, "node": "n", "device": "d", "peerBytesPerSecond": 0, "capacityBytes": 5 * GIB,
         "outsideBytes": 1 << 20, "reserveBytes": 1 << 29, "link": LINK}
        for rank in range(2)
    ],
    "components": [
        {"name": "transformer", "looseBytes": 1 << 28, "groups": [{"name": "blocks", "layerBytes": [GIB, GIB, GIB]}]},
        {"name": "vae", "looseBytes": 1 << 28, "fixed": {"mode": "Offload", "reason": "why not"}, "groups": []},
    ],
    "intervals": [
        {"component": "transformer", "entry": "forward", "adaptive": False,
         "runs": [RUN | {"workload": name, "layerSeconds": {"blocks": [0.1, 0.1, 0.1]}} for name in ("clip", "film")]},
        {"component": "vae", "entry": "decode", "runs": [RUN | {"workload": name} for name in ("clip", "film")]},
        {"component": None, "entry": "prepare", "runs": [RUN | {"workload": name} for name in ("clip", "film")]},
    ],
}  # fmt: skip
PLACEMENT: dict[str, Any] = {
    "apiVersion": "stowplan.dev/v1alpha1",
    "kind": "Placement",
    "components": [
        {"name": "transformer", "mode": "Layerwise", "looseLifetime": "Permanent", "groups": [
            {"name": "blocks", "residentLayers": 1, "policy": "Leading", "lifetime": "Forward", "slots": 2,
             "pinnedLayers": [1, 1], "shardedLayers": None}]},
        {"name": "vae", "mode": "Offload", "prefetch": True, "pinnedBytes": [1, 1]},
    ],
}  # fmt: skip
REFUSAL = re.compile(r"stowplan: (\S+?)(, line 1)?: [A-Za-z]+ field (?P<path>\S+|.*\[\".*\"\]\S*): (?P<why>\S.*)\n")
NAMING = {"is 'elsewhere'", "is '1'", "is 1", "is missing", "has an entry twice", "lacks its last entry", "is None"}
"""Changes of which another field may complain: a name that it gives, a list that must be as long as its own."""


def run(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def finite(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(finite, value.values()))
    if isinstance(value, list):
        return all(map(finite, value))
    return not isinstance(value, float) or math.isfinite(value)


def refused(err: str, path: tuple[str | int, ...], change: str) -> None:
    """One sentence with the path to the field, and what was expected of it."""
    if "ud800" in change:
        assert "is not JSON (a text has half of a character" in err and err.count("\n") == 1
        return
    match = REFUSAL.fullmatch(err)
    assert match is not None, (path, change, err)
    ours, theirs = path_text(path), match["path"]
    assert (
        ours.startswith(theirs)
        or theirs.startswith(ours)
        or theirs in ("CalibrationRecord", "Placement")
        or (change in NAMING or change.startswith("is [") or change.startswith("is {"))
    ), f"{ours} {change}: {err}"


def checked(command: tuple[object, ...], path: tuple[str | int, ...], change: str) -> int:
    """The exit code of a command that read a spoilt document, once it is known to have behaved."""
    code, out, err = run(*command)
    assert code in (0, 2, 3), (path, change, err)
    if code == 2:
        assert out == ""
        if "current placement" not in err and "is not in the record" not in err:
            refused(err, path, change)
        assert err.startswith("stowplan: ") and err.count("\n") == 1
    else:
        assert finite(json.loads(out)), (path, change)
        assert "NaN" not in out and "Infinity" not in out
    return code


def test_a_record_with_any_field_spoilt(tmp_path: Path) -> None:
    """All commands read a record alike, so what is refused is refused once; what is not goes through each in turn."""
    record, placements = tmp_path / "record.json", tmp_path / "placements.jsonl"
    placements.write_text(json.dumps(PLACEMENT))
    commands: tuple[tuple[object, ...], ...] = (
        ("plan", record, "--output", "json"),
        ("cost", record, placements),
        ("explain", record, "--output", "json"),
        ("frontier", record, "--device-memory", "8Gi", "--output", "json"),
    )
    codes: Counter[int] = Counter()
    for number, (path, change, text) in enumerate(mutations(RECORD)):
        record.write_text(text)
        try:
            CalibrationRecord.read(record)
        except ContractError as error:
            codes[2] += 1
            refused(f"stowplan: {error}\n", path, change)
            if number % 40:
                continue
        codes[checked(commands[number % len(commands)], path, change)] += 1
    assert codes[2] > 2000 and codes[0] > 100, codes


def test_a_placement_with_any_field_spoilt(tmp_path: Path) -> None:
    record, placement = tmp_path / "record.json", tmp_path / "placement.json"
    record.write_text(json.dumps(RECORD))
    codes: Counter[int] = Counter()
    for number, (path, change, text) in enumerate(mutations(PLACEMENT)):
        placement.write_text(text)
        command: tuple[object, ...] = ("cost", record, placement)
        if number % 5 == 0:
            command = ("plan", record, "--current", placement, "--output", "json")
        codes[checked(command, path, change)] += 1
    assert codes[2] > 100 and codes[0] > 20, codes


def test_a_plan_with_any_field_spoilt(tmp_path: Path) -> None:
    """A plan is explained from its own fields, so what is spoilt may also be printed as it is."""
    record, plan = tmp_path / "record.json", tmp_path / "plan.json"
    record.write_text(json.dumps(RECORD))
    planned = json.loads(run("plan", record, "--output", "json")[1])
    for number, (path, change, text) in enumerate(mutations(planned)):
        plan.write_text(text)
        try:
            Plan.read(plan)
        except ContractError as error:
            assert str(error).startswith(f"{plan}: ") and "\n" not in str(error), (path, change)
            continue
        if number % 8 == 0:
            code, _, err = run("explain", plan)
            assert code in (0, 2, 3), (path, change, err)
            assert code != 2 or err.count("\n") == 1


@pytest.mark.parametrize("command", ["plan", "explain", "frontier", "cost"])
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot be read (No such file or directory)"),
        (b"", "is not JSON"),
        (b"\x7fELF\x00\x01\xff", "is not JSON"),
        (b"\xff\xfe{\x00}\x00", "is not JSON"),
        (b"{]", "is not JSON"),
        (b"[]", "CalibrationRecord field CalibrationRecord"),
        (b"null", "CalibrationRecord field CalibrationRecord"),
        (b"1" * 5000, "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b'{"kind": "CalibrationRecord", "kind": "Plan"}', 'an object has the name "kind" twice'),
    ],
)
def test_what_is_no_record(command: str, content: bytes | None, words: str, tmp_path: Path) -> None:
    path, placements = tmp_path / "record.json", tmp_path / "placements.jsonl"
    placements.write_text(json.dumps(PLACEMENT))
    if content is not None:
        path.write_bytes(content)
    code, out, err = run(command, path, *([placements] if command == "cost" else []))
    assert (code, out) == (2, "")
    assert words in err and err.count("\n") == 1


@pytest.mark.parametrize("command", ["plan", "explain", "frontier", "cost"])
def test_a_folder_is_no_record(command: str, tmp_path: Path) -> None:
    code, out, err = run(command, tmp_path, *([tmp_path] if command == "cost" else []))
    assert (code, out) == (2, "")
    assert "cannot be read (Is a directory)" in err and err.count("\n") == 1
