"""A stored start that is not of this one: found out before a weight is read, said, and no failure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.stored_starts import Starts, change
from stowplan_agent.lifecycle.warm_start import StoredStart
from stowplan_agent.lifecycle.warm_start import key as keys

LOOKED_UP = [
    ("torn", lambda text: text[: len(text) // 2], "is torn or no JSON"),
    ("format", lambda text: text.replace('"format": 2', '"format": 7'), "has format 7, and this version reads 2"),
    ("edited", lambda text: text.replace('"residentLayers": ', '"residentLayers": 1'), "was changed or damaged"),
]


@pytest.mark.parametrize(("name", "alter", "words"), LOOKED_UP, ids=[case[0] for case in LOOKED_UP])
def test_a_file_that_cannot_be_used_is_a_reason_and_no_failure(
    until: Starts, records: Path, name: str, alter: Callable[[str], str], words: str
) -> None:
    (path,) = records.iterdir()
    path.write_text(alter(path.read_text()))
    started = until("Inventory")
    calibrated = started.condition("Calibrated")
    assert (calibrated.status, calibrated.reason) == ("Unknown", "NotReused")
    assert words in calibrated.message
    assert started.startup.warm_start.stored is None


@pytest.mark.parametrize("program", ["torch", "diffusers", "stowplan"])
def test_another_version_of_a_program_is_another_fingerprint(
    until: Starts, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = keys.installed_version
    monkeypatch.setattr(keys, "installed_version", lambda name: "9.9" if name == program else installed(name))
    started = until("Inventory")
    assert f"a stored start of this model with another {program} (" in started.condition("Calibrated").message
    assert "and not 9.9)" in started.condition("Calibrated").message


@pytest.mark.parametrize(
    ("more", "fact"),
    [
        ({"shapes": ["32x32x5@3"]}, "shapes"),
        ({"memory_limit": 4 << 30}, "memory limit"),
        ({"spec": {"residency": {"deviceReserve": "2Mi"}}}, "residency"),
        ({"environment": {"STOWPLAN_EMULATED_FLOPS": "1e9"}}, "STOWPLAN_EMULATED_FLOPS"),
        ({"environment": {"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1"}}, "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"),
    ],
)
def test_other_limits_or_another_workload_are_another_fingerprint(
    until: Starts, more: dict[str, object], fact: str
) -> None:
    assert f"with another {fact} (" in until("Inventory", **more).condition("Calibrated").message


def test_what_does_not_fit_this_pod_any_more_is_not_even_loaded(until: Starts, records: Path) -> None:
    def grown(start: StoredStart) -> StoredStart:
        intervals = tuple(
            interval.model_copy(
                update={
                    "runs": tuple(run.model_copy(update={"activation_bytes": (39 << 20,)}) for run in interval.runs)
                }
            )
            for interval in start.record.intervals
        )
        return start.model_copy(update={"record": start.record.model_copy(update={"intervals": intervals})})

    change(records, grown)
    message = until("Inventory").condition("Calibrated").message
    assert message.startswith("the stored start does not fit this pod: interval 0 ")
