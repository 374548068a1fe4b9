"""What must be the same for a stored start to be worth trying, and the fingerprint over it.

Two starts with one fingerprint load the same model the same way onto the same kind of card under the same limits, with
the same programs, and are asked for the same. The bytes of the weights are not in it (nobody reads them to find out):
that is what proving the output bit for bit is for.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed
from typing import Final

from stowplan_agent import inventory
from stowplan_agent.accelerators.choice import CARD_FIELDS
from stowplan_agent.lifecycle.settings import StartSettings
from stowplan_agent.lifecycle.survey import Survey
from stowplan_api.quantity import for_people

PROGRAMS: Final = ("stowplan", "torch", "diffusers", "transformers", "accelerate", "safetensors", "tokenizers")
"""Distributions whose other version may compute other bits, or place weights another way."""
VARIABLES: Final = ("TORCH_", "PYTORCH_", "CUBLAS", "CUDNN", "NVIDIA_TF32", "DIFFUSERS_ATTN")
"""How variables begin that choose kernels, their precision, or how device memory is taken."""
DIGITS: Final = 32
SHOWN: Final = 40


def facts_of(survey: Survey, settings: StartSettings, version: Callable[[str], str] | None = None) -> dict[str, str]:
    """Fact to value, as text. ``version`` tells that of a distribution; None: the installed ones."""
    spec, accelerator, driver = settings.spec, survey.accelerator, survey.accelerator.facts
    version = version or installed_version
    facts = {
        "model": inventory.fingerprint(survey.checkpoint),
        "dtype": spec.model.dtype,
        "device": accelerator.product,
        "device memory": for_people(accelerator.capacity_bytes()),
        "driver": (driver.driver if driver else None) or "",
        "memory limit": "" if settings.memory_limit is None else for_people(settings.memory_limit),
        "shapes": _text([shape.to_json() for shape in spec.workload.shapes]),
        "resources": _text(spec.resources.to_json()),
        "parallelism": "" if spec.parallelism is None else _text(spec.parallelism.to_json()),
        "residency": _text(spec.residency.to_json()),
    }
    facts |= {name: version(name) for name in PROGRAMS}
    chosen = {name for name in settings.environment if name.startswith(VARIABLES)} | set(CARD_FIELDS)
    return facts | {name: value for name in sorted(chosen) if (value := settings.environment.get(name))}


def fingerprint_of(facts: Mapping[str, str]) -> str:
    """The name of a stored start: the same for the same facts, in every process."""
    return hashlib.sha256(_text(dict(facts)).encode()).hexdigest()[:DIGITS]


def differences(stored: Mapping[str, str], wanted: Mapping[str, str]) -> str:
    """Which facts differ, for people: ``driver (570.86 and not 580.65), torch (...)``."""
    names = [name for name in {**wanted, **stored} if stored.get(name, "") != wanted.get(name, "")]
    return ", ".join(f"{name} ({_short(stored.get(name))} and not {_short(wanted.get(name))})" for name in names)


def installed_version(name: str) -> str:
    """The version of an installed distribution; empty where there is none."""
    try:
        return installed(name)
    except PackageNotFoundError:
        return ""


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _short(value: str | None) -> str:
    if not value:
        return "nothing"
    return value if len(value) <= SHOWN else f"{value[:SHOWN]}..."
