"""An estimate names what will be loaded: a record that is measured later has the same components, layers and bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from diffusers import DiffusionPipeline
from typer.testing import CliRunner

from pipelines.tiny_requests import modules
from stowplan_agent.accelerators.emulated import EmulatedAccelerator, EmulatedCard
from stowplan_agent.cli import app
from stowplan_agent.weights import WeightsEngine
from stowplan_api.record import CalibrationRecord

SHAPES = {"tiny-wan": "32x32x5@4", "tiny-qwen": "32x32@4", "tiny-sdxl": "32x32@4", "tiny-flux": "32x32@4"}


def estimated(folder: Path, shape: str, *flags: str) -> CalibrationRecord:
    call = ["estimate", str(folder), "--card", "rtx-4090", "--shape", shape, "--output", "json", *flags]
    result = CliRunner().invoke(app, call)
    assert result.exit_code == 0, result.stderr
    return CalibrationRecord.model_validate(json.loads(result.stdout)["record"])


@pytest.mark.parametrize("name", SHAPES)
def test_components_and_groups_are_those_of_the_engine(name: str, write_tiny: Callable[[str], Path]) -> None:
    folder = write_tiny(name)
    record = estimated(folder, SHAPES[name])
    pipe = DiffusionPipeline.from_pretrained(folder, dtype=torch.bfloat16, local_files_only=True)
    engine = WeightsEngine(EmulatedAccelerator(EmulatedCard(capacity_bytes=1 << 30)))
    try:
        engine.adopt(modules(pipe))
        found = {part.name: part for part in engine.describe() if part.fixed is None}
        assert found
        for part in record.components:
            if part.name in found:
                assert part.groups == found[part.name].groups
                assert part.loose_bytes == found[part.name].loose_bytes
    finally:
        engine.close()


def test_names_that_change_on_loading_are_the_new_ones_unless_headers_alone_are_asked_for(
    write_tiny: Callable[[str], Path],
) -> None:
    folder = write_tiny("tiny-qwen")
    exact, by_headers = (
        {group.name for group in estimated(folder, "32x32@4", *flags).component("text_encoder").groups}
        for flags in ((), ("--headers-only",))
    )
    assert exact == {"model.visual.blocks", "model.language_model.layers"}
    assert by_headers == {"model.layers", "visual.blocks"}
