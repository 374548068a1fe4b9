"""A setting that changes nothing is said, with the reason; one that does is not."""

from __future__ import annotations

from typing import Any

import pytest

from stowplan_agent.lifecycle.effects import without_effect
from stowplan_agent.lifecycle.settings import StartSettings
from stowplan_api.diffusion_deployment import DiffusionDeploymentSpec

CARD = 24 << 30
OFFLOADED = {"components": [{"name": "vae", "mode": "Offload"}]}


def said(environment: dict[str, str] | None = None, **spec: Any) -> tuple[str, ...]:
    written: dict[str, Any] = {
        "model": {"source": "hf://a/b"},
        "workload": {"shapes": [{"name": "clip", "width": 64, "height": 64, "steps": 4}]},
        "resources": {"memory": "8Gi"},
    }
    settings = StartSettings.read(DiffusionDeploymentSpec.model_validate(written | spec), environment or {})
    return without_effect(settings, CARD)


def test_nothing_is_said_of_what_works() -> None:
    assert said() == ()
    assert said(residency={"prefer": {"keep": ["vae"]}}, resources={"memory": "8Gi", "deviceMemory": "12Gi"}) == ()
    assert said({"STOWPLAN_RECORD_DIR": "records", "STOWPLAN_PHASE_DEADLINES": "Load=9", "PATH": "/bin"}) == ()
    assert said(residency={"mode": "Pinned", "placement": OFFLOADED}) == ()
    assert said({"STOWPLAN_ACCELERATOR": "emulated", "STOWPLAN_EMULATED_FLOPS": "1e9"}) == ()


SILENT: list[tuple[dict[str, str], dict[str, Any], str]] = [
    (
        {},
        {"residency": {"mode": "Static", "prefer": {"keep": ["vae", "unet"]}}},
        "residency.prefer.keep (vae, unet) has no effect: residency.mode is Static",
    ),
    (
        {"STOWPLAN_DISABLE_AUTO_RESIDENCY": "1"},
        {"residency": {"prefer": {"neverKeep": ["vae"]}}},
        "residency.prefer.neverKeep (vae) has no effect: STOWPLAN_DISABLE_AUTO_RESIDENCY is set",
    ),
    (
        {"STOWPLAN_DISABLE_AUTO_RESIDENCY": "1"},
        {"residency": {"mode": "Pinned", "placement": OFFLOADED}},
        "residency.placement has no effect: STOWPLAN_DISABLE_AUTO_RESIDENCY is set",
    ),
    (
        {},
        {"residency": {"placement": OFFLOADED}},
        "residency.placement has no effect: residency.mode is Auto, not Pinned",
    ),
    (
        {"STOWPLAN_RECORD_DIR": "records"},
        {"residency": {"mode": "Static"}},
        "STOWPLAN_RECORD_DIR has no effect: residency.mode is Static",
    ),
    (
        {},
        {"resources": {"memory": "8Gi", "deviceMemory": "30Gi"}},
        "resources.deviceMemory (30 GiB) has no effect: this process may use 24 GiB of the device, and a ceiling never "
        "lifts that",
    ),
    (
        {"STOWPLAN_EMULATED_FLOPS": "1e9"},
        {},
        "STOWPLAN_EMULATED_FLOPS has no effect: the accelerator is cuda, not emulated",
    ),
    (
        {},
        {"model": {"source": "file:///a", "revision": "v2"}},
        "model.revision (v2) has no effect: file:///a is no hf:// source",
    ),
    (
        {},
        {"workload": {"shapes": [{"name": "clip", "width": 64, "height": 64, "steps": 4, "weight": 3}]}},
        "the weight of shape clip (3) has no effect: it is the only shape",
    ),
    (
        {"STOWPLAN_DISABLE_AUTORESIDENCY": "1"},
        {},
        "STOWPLAN_DISABLE_AUTORESIDENCY has no effect: nobody reads it; STOWPLAN_DISABLE_AUTO_RESIDENCY is read",
    ),
    (
        {"STOWPLAN_PHASE_DEADLINE": "Load=9"},
        {},
        "STOWPLAN_PHASE_DEADLINE has no effect: nobody reads it; STOWPLAN_PHASE_DEADLINES is read",
    ),
]


@pytest.mark.parametrize(("environment", "spec", "sentence"), SILENT)
def test_each_setting_without_effect_is_said(environment: dict[str, str], spec: dict[str, Any], sentence: str) -> None:
    assert sentence in said(environment, **spec)


def test_variables_of_others_are_nobodys_business() -> None:
    assert said({"STOWPLAN_OPERATOR_PORT_9090_TCP": "tcp://10.0.0.1:9090", "STOWPLAN_X": "1"}) == ()
