"""A stored start is another's if one thing differs that decides what is loaded, computed or placed; each in turn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from stowplan_agent import inventory
from stowplan_agent.lifecycle import StartSettings
from stowplan_agent.lifecycle.warm_start import facts_of, fingerprint_of
from stowplan_agent.lifecycle.warm_start.key import PROGRAMS
from stowplan_api.diffusion_deployment import DiffusionDeploymentSpec

SPEC: dict[str, Any] = {
    "model": {"source": "file:///models/wan"},
    "workload": {"shapes": [{"name": "clip", "width": 64, "height": 64, "steps": 4}]},
    "resources": {"memory": "2Gi"},
}
NOT_ASKED = {"replicas", "serving", "rollout", "paused", "podTemplate"}
"""Fields of the spec that change nothing of a process's placement: a stored start is as good with any of them. What a
pod template changes shows in the environment, the limits and the card."""
OTHER: dict[str, Callable[[dict[str, Any]], object]] = {
    "model": lambda spec: spec["model"].update(dtype="float16"),
    "workload": lambda spec: spec["workload"]["shapes"][0].update(steps=5),
    "resources": lambda spec: spec["resources"].update(memory="3Gi"),
    "parallelism": lambda spec: spec.update(parallelism={"ulysses": 2, "ring": 1}),
    "residency": lambda spec: spec.update(residency={"validation": {"maxSlowdownPercent": 6}}),
}


def survey(model: str = "m", product: str = "Card", capacity: int = 1 << 30, driver: str = "570") -> Any:
    card = SimpleNamespace(product=product, capacity_bytes=lambda: capacity, facts=SimpleNamespace(driver=driver))
    return SimpleNamespace(checkpoint=model, accelerator=card)


def settings(change: Callable[[dict[str, Any]], object] = lambda _: None, **environment: str) -> StartSettings:
    spec = {name: ({**value} if isinstance(value, dict) else value) for name, value in SPEC.items()}
    spec["workload"] = {"shapes": [{**shape} for shape in SPEC["workload"]["shapes"]]}
    change(spec)
    return StartSettings.read(DiffusionDeploymentSpec.model_validate(spec), environment)


@pytest.fixture(autouse=True)
def checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory, "fingerprint", lambda checkpoint: checkpoint)


def version(name: str) -> str:
    return f"{name} 1"


def before() -> dict[str, str]:
    return facts_of(survey(), settings(), version)


def differing(after: dict[str, str]) -> set[str]:
    return {name for name in after | before() if after.get(name) != before().get(name)}


def test_each_field_of_the_spec_is_asked_or_said_not_to_be() -> None:
    fields = {field.alias or name for name, field in DiffusionDeploymentSpec.model_fields.items()}
    assert fields == OTHER.keys() | NOT_ASKED


@pytest.mark.parametrize("field", OTHER)
def test_a_spec_that_differs_in_one_field_is_another_start(field: str) -> None:
    after = facts_of(survey(), settings(OTHER[field]), version)
    assert len(differing(after)) == 1 and not differing(facts_of(survey(), settings(), version))
    assert fingerprint_of(after) != fingerprint_of(before())


@pytest.mark.parametrize("program", PROGRAMS)
def test_another_version_of_any_program_is_another_start(program: str) -> None:
    assert differing(facts_of(survey(), settings(), lambda name: "2" if name == program else version(name))) == {
        program
    }


@pytest.mark.parametrize(
    ("other", "fact"),
    [
        (survey(model="n"), "model"),
        (survey(product="Other"), "device"),
        (survey(capacity=2 << 30), "device memory"),
        (survey(driver="580"), "driver"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_another_checkpoint_card_or_driver_is_another_start(other: Any, fact: str) -> None:
    assert differing(facts_of(other, settings(), version)) == {fact}


def test_another_limit_of_memory_and_variables_that_choose_kernels_are_another_start() -> None:
    assert differing(facts_of(survey(), replace(settings(), memory_limit=1 << 30), version)) == {"memory limit"}
    for name in ("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "PYTORCH_CUDA_ALLOC_CONF", "NVIDIA_TF32_OVERRIDE"):
        assert differing(facts_of(survey(), settings(**{name: "1"}), version)) == {name}
    assert not differing(facts_of(survey(), settings(HOME="elsewhere"), version))
