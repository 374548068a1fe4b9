"""A rollout's deadline where cards are slower than was thought, and what is said when it passes."""

from __future__ import annotations

from typing import Any

import pytest
from decisions import conditions, decided, running, written
from observations import NOW, SETTINGS, condition, deployment_of_user, measured, placement, pod, snapshot

from stowplan_operator.decide import Settled, decide
from stowplan_operator.kinds import Json
from stowplan_operator.render import children, read_spec
from stowplan_operator.render.deadlines import progress_deadline_seconds, request_seconds

LATE = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
SPEC = read_spec(deployment_of_user())
REQUEST = request_seconds(SPEC.workload.shapes[0])
PLAIN = progress_deadline_seconds(SPEC)


@pytest.mark.parametrize(
    ("seconds", "times"),
    [(None, 1), (60, 1), (REQUEST / 2, 1), (REQUEST / 2 + 1, 2), (REQUEST, 2), (REQUEST + 1, 4), (1e9, 86_400)],
    ids=["nothing measured", "as fast as it gets", "with slack", "slow", "twice", "slower", "beyond a day"],
)
def test_what_was_measured_lengthens_a_deadline_and_shortens_none(seconds: float | None, times: int) -> None:
    deadline = progress_deadline_seconds(SPEC, None if seconds is None else round(seconds * 1000))
    assert deadline == min(86_400, PLAIN + (times - 1) * 4 * REQUEST)


def test_requests_of_about_the_same_time_have_the_same_deadline() -> None:
    assert len({progress_deadline_seconds(SPEC, 1000 * seconds) for seconds in range(2700, 5200, 100)}) == 1


def serves(milliseconds: int) -> list[Json]:
    dd = deployment_of_user()
    proof = measured()
    proof["validation"]["milliseconds"] = milliseconds
    return running(dd, pod(dd), placement(**proof))


def deadline(objects: list[Json]) -> int:
    (found,) = [raw for raw in objects if raw["kind"] == "Deployment"]
    seconds: int = found["spec"]["progressDeadlineSeconds"]
    return seconds


def test_a_slow_card_is_known_from_the_first_proof_on_and_its_pods_stay() -> None:
    objects, templates = serves(5_000_000), set()
    settled = Settled()
    for _ in range(4):
        decision = decide(snapshot(*objects), NOW, SETTINGS, settled=settled)
        templates |= {str(write.manifest["spec"]["template"]) for write in decision.children}
        objects = written(objects, decision)
    assert not decide(snapshot(*objects), NOW, SETTINGS, settled=settled)
    assert deadline(objects) == progress_deadline_seconds(SPEC, 5_000_000) > PLAIN
    assert len(templates) == 1
    before = children(deployment_of_user(), SPEC, SETTINGS)[-1]["spec"]["template"]
    assert templates == {str(before)}, "no pod is replaced for it"


def test_what_was_measured_last_outlives_the_pod() -> None:
    objects = serves(5_000_000)
    for _ in range(3):
        objects = written(objects, decided(*objects))
    gone = [raw for raw in objects if raw["kind"] not in ("Pod", "ResidencyPlacement")]
    decision = decided(*gone)
    assert decision.status is not None
    assert decision.status["status"]["requestMilliseconds"] == 5_000_000
    assert decision.children == ()


def late(said: Json | None, **of_pod: Any) -> dict[str, tuple[str, str, str]]:
    """The conditions when the Deployment's deadline has passed."""
    dd = deployment_of_user()
    found = [pod(dd, ready=False, gate="False", **of_pod), *([] if said is None else [said])]
    objects = running(dd, *found)
    next(raw for raw in objects if raw["kind"] == "Deployment")["status"]["conditions"] = [LATE]
    return conditions(decided(*objects))


def test_a_deadline_that_passes_while_the_agent_keeps_its_own_is_told_and_is_no_end() -> None:
    said = late(placement(phase="Probe", validated="False"))
    assert said["Ready"][:2] == ("False", "ProgressDeadlineExceeded")
    assert "is in phase Probe" in said["Ready"][2]
    assert said["Progressing"][0] == "False"
    assert "Stalled" not in said


@pytest.mark.parametrize(
    ("said", "started"), [(None, 300), (placement(started=None, validated=None), 300), (placement(started=400), 300)]
)
def test_where_no_agent_speaks_the_rollout_is_stalled(said: Json | None, started: float) -> None:
    assert late(said, started=started)["Stalled"][:2] == ("True", "ProgressDeadlineExceeded")


def test_an_agent_that_is_late_itself_is_what_is_told() -> None:
    said = placement(phase="Probe", validated=None)
    said["status"]["conditions"].append(condition("Validated", "False", "DeadlineExceeded", "phase Probe hangs"))
    assert late(said)["Ready"][1] == "PlacementFailed"
