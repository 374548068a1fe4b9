"""What a start is told by its environment."""

from __future__ import annotations

import pytest

from stowplan_agent.lifecycle import StartSettings
from stowplan_api.diffusion_deployment import DiffusionDeploymentSpec

SPEC = DiffusionDeploymentSpec.model_validate(
    {
        "model": {"source": "file:///models/wan"},
        "workload": {"shapes": [{"name": "clip", "width": 64, "height": 64, "steps": 4}]},
        "resources": {"memory": "2Gi"},
    }
)


@pytest.mark.parametrize(
    ("text", "disabled"),
    [
        *[(text, True) for text in ("1", "true", "TRUE", "yes", "on", "2")],
        *[(text, False) for text in ("", "0", "false", "False ", "no", "off")],
    ],
)
def test_the_kill_switch_is_on_unless_it_says_no(text: str, disabled: bool) -> None:
    assert StartSettings.read(SPEC, {"STOWPLAN_DISABLE_AUTO_RESIDENCY": text}).disabled is disabled
    assert not StartSettings.read(SPEC, {}).disabled
