"""Cards that are too small, from far to nearly: each sentence says what is short, of how many bytes, and what helps."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from starts import Start, settings_of, start
from stowplan_agent.planning import solve, with_device_memory


def failed(path: Path, card: str, **options: object) -> Start:
    started = start(settings_of(path, card, **options))  # type: ignore[arg-type]
    started.startup.close()
    assert started.phase == "Failed"
    assert not started.progress.door.open
    assert started.progress.door.message == started.error
    for condition in ("Validated", "Ready"):
        found = started.condition(condition)
        assert (found.status, found.reason, found.message) == ("False", "Failed", started.error)
    return started


def test_weights_alone_do_not_fit(tiny_wan: Path) -> None:
    started = failed(tiny_wan, "4Mi")
    assert started.phases == ["Inventory"]
    assert started.condition("Calibrated").reason == "OutOfMemory"
    assert re.fullmatch(
        r"tiny-wan does not fit Emulated 4 MiB: text_encoder needs 6\.\d+ MiB of device memory even when streamed, and "
        r"3 MiB are free; use a device with 3\.\d+ MiB more",
        started.error,
    )


@pytest.mark.parametrize(("model", "component"), [("tiny-wan", "text_encoder"), ("tiny-flux", "text_encoder_2")])
def test_activations_that_no_shape_makes_smaller_do_not_fit(
    write_tiny: Callable[[str], Path], model: str, component: str
) -> None:
    started = failed(write_tiny(model), "12Mi")
    assert started.phases == ["Inventory", "Load", "Warm"]
    assert started.condition("Calibrated").reason == "OutOfMemory"
    match = re.fullmatch(
        rf"{model} does not fit Emulated 12 MiB even with everything streamed: interval {component}\.forward is at "
        r"least (\d+) bytes short; give it at least [\d.]+ MiB \((\d+) bytes\) of device memory",
        started.error,
    )
    assert match is not None, started.error
    assert int(match[2]) == (13 << 20) + int(match[1])  # 12, and the reserve of 1


def test_a_shape_that_does_not_fit_is_extrapolated_and_the_failed_proof_says_what_is_short(tiny_wan: Path) -> None:
    """The decoder's need lies on the line through two lighter requests; encoders need what they need at any shape."""
    started = failed(tiny_wan, "29Mi", shapes=["160x160x5@2"])
    assert started.phases[-2:] == ["Validate", "RollBack"]  # the seed placement had its chance at the declared shape
    calibrated = started.condition("Calibrated")
    assert (calibrated.status, calibrated.reason) == ("True", "Extrapolated")
    assert re.search(
        r"160x160x5 did not fit Emulated 29 MiB and is extrapolated from \d+x\d+, 2 steps", calibrated.message
    )
    applied = started.condition("Applied")
    assert (applied.status, applied.reason) == ("False", "Infeasible")
    assert re.match(r"no placement fits: interval \d+ \(vae decode\) on rank 0 needs [\d.]+ MiB", started.error)
    assert re.search(r"\d+ bytes more than the 29 MiB there are", started.error)
    assert "text_encoder" not in started.error
    assert "would fit: " in started.error
    record = started.startup.prepared.record
    assert record.extrapolated
    encode = next(interval for interval in record.intervals if interval.component == "text_encoder")
    assert max(encode.runs[0].activation_bytes) < 29 << 20


def test_a_card_on_which_requests_run_but_not_beside_the_reserve(tiny_wan: Path) -> None:
    started = failed(tiny_wan, "40Mi", spec={"residency": {"deviceReserve": "20Mi"}})
    assert started.phases[-1] == "Solve"
    assert started.condition("Calibrated").reason == "Measured"
    assert started.condition("Applied").reason == "Infeasible"
    assert "a reserve of 20 MiB" in started.error
    assert "would fit: " in started.error
    record = started.startup.prepared.record
    (change,) = (one for one in solve(record).would_fit if one.what == "deviceMemory")
    assert change.needed_bytes is not None
    assert solve(with_device_memory(record, change.needed_bytes)).status == "Optimal"
    assert solve(with_device_memory(record, change.needed_bytes - 1)).status == "Infeasible"


def test_a_memory_limit_below_need_names_the_limit(tiny_wan: Path) -> None:
    started = failed(tiny_wan, "40Mi", memory_limit=16 << 20)
    assert started.phases == ["Inventory"]
    assert re.fullmatch(
        r"tiny-wan needs at least [\d.]+ MiB of host memory, and the pod's memory limit \(16 MiB\) leaves -?[\d.]+ "
        r"\w+; raise it by [\d.]+ \w+",
        started.error,
    )
