"""Settings that change nothing here: each is said, with the reason, so that nobody waits for what it was to do. Pure.

A name that the pipeline lacks is refused (`preferences`). What is left are settings that are right in another mode, on
another card or under another name; they do no harm, and a start goes on without them.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Final

from stowplan_agent.accelerators.choice import CARD_FIELDS
from stowplan_agent.lifecycle.deadlines import DEADLINES
from stowplan_agent.lifecycle.settings import DISABLE, StartSettings
from stowplan_api.contract import RECORD_DIR, Env
from stowplan_api.quantity import for_people

KNOWN: Final = (*(str(name) for name in Env), DISABLE, RECORD_DIR, DEADLINES, *CARD_FIELDS)
"""Variables that the agent reads."""
PREFIX: Final = "STOWPLAN_"
ALIKE: Final = 0.85
"""How like a known variable another one must be to be taken for a typing error; others are nobody's business."""


def without_effect(settings: StartSettings, capacity_bytes: int) -> tuple[str, ...]:
    """One sentence for each setting without effect. ``capacity_bytes``: what this process may use of the device."""
    return (
        *_of_the_mode(settings),
        *_of_the_machine(settings, capacity_bytes),
        *_of_the_workload(settings),
        *_of_the_environment(settings),
    )


def _of_the_mode(settings: StartSettings) -> Iterator[str]:
    residency = settings.spec.residency
    forced = f"{DISABLE} is set" if settings.disabled else ""
    why = forced or (f"residency.mode is {residency.mode}" if residency.mode != "Auto" else "")
    for name, given in (("keep", residency.prefer.keep), ("neverKeep", residency.prefer.never_keep)):
        if given and why:
            yield f"residency.prefer.{name} ({', '.join(given)}) has no effect: {why}"
    if residency.placement is not None and (forced or residency.mode != "Pinned"):
        yield f"residency.placement has no effect: {forced or f'residency.mode is {residency.mode}, not Pinned'}"
    if settings.record_dir is not None and why:
        yield f"{RECORD_DIR} has no effect: {why}"


def _of_the_machine(settings: StartSettings, capacity_bytes: int) -> Iterator[str]:
    ceiling = settings.spec.resources.device_memory
    if ceiling is not None and ceiling > capacity_bytes:
        yield (
            f"resources.deviceMemory ({for_people(ceiling)}) has no effect: this process may use "
            f"{for_people(capacity_bytes)} of the device, and a ceiling never lifts that"
        )
    if settings.accelerator != "emulated":
        for name in CARD_FIELDS:
            if settings.environment.get(name):
                yield f"{name} has no effect: the accelerator is {settings.accelerator}, not emulated"


def _of_the_workload(settings: StartSettings) -> Iterator[str]:
    model, shapes = settings.spec.model, settings.spec.workload.shapes
    if model.revision != "main" and not model.source.startswith("hf://"):
        yield f"model.revision ({model.revision}) has no effect: {model.source} is no hf:// source"
    if len(shapes) == 1 and shapes[0].weight != 1:
        yield f"the weight of shape {shapes[0].name} ({shapes[0].weight}) has no effect: it is the only shape"


def _of_the_environment(settings: StartSettings) -> Iterator[str]:
    for name in sorted(settings.environment):
        if name.startswith(PREFIX) and name not in KNOWN:
            for meant in get_close_matches(name, KNOWN, n=1, cutoff=ALIKE):
                yield f"{name} has no effect: nobody reads it; {meant} is read"
