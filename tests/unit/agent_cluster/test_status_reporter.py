"""The newest status reaches the API server whatever it does meanwhile, and the caller never waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from stowplan_agent.cluster.backoff import Backoff
from stowplan_agent.cluster.boot import new_agent
from stowplan_agent.cluster.client import PlacementClient
from stowplan_agent.cluster.reporter import ReporterError
from stowplan_agent.cluster.status_reporter import StatusReporter
from stowplan_api.conditions import find
from stowplan_api.residency_placement import Rollback

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
DEADLINE = 20.0
Make = Callable[..., StatusReporter]


@pytest.fixture
def make(api: Any) -> Iterator[Make]:
    made: list[StatusReporter] = []

    def make(resync: float = 600.0, backoff: Backoff | None = None) -> StatusReporter:
        reporter = StatusReporter(
            PlacementClient(api.configuration(), "default", "pod-1"),
            "uid-1",
            new_agent(NOW, "0.1.0"),
            now=lambda: NOW,
            jitter=lambda: 0.0,
            backoff=backoff or Backoff(first=0.01, most=0.05, most_missing=0.05),
            resync=resync,
        )
        made.append(reporter)
        reporter.start()
        return reporter

    yield make
    for reporter in made:
        reporter.close(timeout=1.0)


def phase(reporter: StatusReporter, name: str) -> None:
    reporter.report(reporter.status.model_copy(update={"phase": name}))


def test_the_first_write_of_a_boot_closes_the_gate(api: Any, make: Make) -> None:
    api.create(generation=3)
    first = make()
    first.read_spec(DEADLINE)
    old = first.status
    validated = tuple(
        condition.model_copy(update={"status": "True", "last_transition_time": "2025-01-01T00:00:00Z"})
        if condition.type in ("Validated", "Ready")
        else condition.model_copy(update={"last_transition_time": "2025-01-01T00:00:00Z"})
        for condition in old.conditions
    )
    rollback = Rollback(time="2025-01-01T00:00:00Z", reason="TooSlow", from_="a", to="b")
    first.report(old.model_copy(update={"phase": "Ready", "conditions": validated, "rollbacks": (rollback,)}))
    assert first.flush(DEADLINE)
    first.close()

    second = make()
    assert second.read_spec(DEADLINE).generation == 3
    assert second.flush(DEADLINE)
    written = api.writes[-1]
    assert written["agent"]["bootId"] != api.writes[0]["agent"]["bootId"]
    assert written["agent"]["startedAt"] == "2026-01-02T03:04:05Z"
    assert written["phase"] == "Pending" and written["observedGeneration"] == 3
    conditions = {condition["type"]: condition for condition in written["conditions"]}
    assert conditions["Validated"]["status"] == conditions["Ready"]["status"] == "False"
    assert conditions["Validated"]["lastTransitionTime"] == "2026-01-02T03:04:05Z"
    assert conditions["Applied"]["lastTransitionTime"] == "2025-01-01T00:00:00Z"
    assert all(condition["observedGeneration"] == 3 for condition in conditions.values())
    assert [entry["reason"] for entry in written["rollbacks"]] == ["TooSlow"]


def test_writes_are_forced_server_side_applies_of_the_agents_manager(api: Any, make: Make) -> None:
    api.create()
    reporter = make()
    reporter.read_spec(DEADLINE)
    assert reporter.flush(DEADLINE)
    assert api.patches == [("application/apply-patch+yaml", {"fieldManager": ["stowplan-agent"], "force": ["true"]})]


def test_it_waits_for_the_operator_to_create_the_object(api: Any, make: Make) -> None:
    reporter = make()
    api.until(lambda: api.calls.count("GET") >= 4)
    with pytest.raises(ReporterError, match="default/pod-1 does not exist; the operator creates it"):
        reporter.read_spec(timeout=0.05)
    assert reporter.problem is not None
    api.create(generation=7)
    assert reporter.read_spec(DEADLINE).generation == 7
    assert reporter.flush(DEADLINE)
    assert api.phases() == ["Pending"]


def test_the_object_of_a_former_pod_of_this_name_is_left_alone(api: Any, make: Make) -> None:
    api.create(uid="rp-0", pod_uid="uid-0")
    reporter = make()
    api.until(lambda: api.calls.count("GET") >= 3)
    with pytest.raises(ReporterError, match="belongs to the pod with uid uid-0"):
        reporter.read_spec(timeout=0.05)
    assert api.writes == []
    api.create(uid="rp-1", pod_uid="uid-1")
    assert reporter.flush(DEADLINE) and len(api.writes) == 1


@pytest.mark.parametrize("status", [0, 401, 403, 409, 429, 500, 503])
def test_any_failure_is_retried_until_it_is_written(api: Any, make: Make, trouble: Any, status: int) -> None:
    api.create()
    reporter = make()
    reporter.read_spec(DEADLINE)
    assert reporter.flush(DEADLINE)
    api.trouble("PATCH", *[trouble(status)] * 3)
    phase(reporter, "Load")
    assert reporter.flush(DEADLINE)
    assert api.phases() == ["Pending", "Load"]
    assert api.calls.count("PATCH") == 5


def test_a_failed_read_is_retried(api: Any, make: Make, trouble: Any) -> None:
    api.create()
    api.trouble("GET", trouble(0), trouble(503), trouble(403))
    assert make().read_spec(DEADLINE).deployment == "wan"


def test_being_refused_says_which_right_is_missing(api: Any, make: Make, trouble: Any) -> None:
    api.create()
    reporter = make()
    reporter.read_spec(DEADLINE)
    assert reporter.flush(DEADLINE)
    api.trouble("PATCH", *[trouble(403, "User system:serviceaccount:default:wan cannot patch")] * 1000)
    phase(reporter, "Load")
    api.until(lambda: api.calls.count("PATCH") >= 4)
    assert reporter.problem is not None
    assert "cannot patch" in reporter.problem and "residencyplacements/status" in reporter.problem
    assert not reporter.flush(0.05)
    with api.changed:
        api.troubles["PATCH"].clear()
    assert reporter.flush(DEADLINE)
    api.until(lambda: api.phases()[-1] == "Load")


def test_statuses_that_were_overtaken_are_never_sent(api: Any, make: Make, trouble: Any) -> None:
    api.create()
    reporter = make()
    reporter.read_spec(DEADLINE)
    assert reporter.flush(DEADLINE)
    api.trouble("PATCH", *[trouble(503)] * 1000)
    for name in ("Inventory", "Load", "Warm", "Probe"):
        phase(reporter, name)
    with api.changed:
        api.troubles["PATCH"].clear()
    assert reporter.flush(DEADLINE)
    assert api.phases()[-1] == "Probe" and len(api.writes) == 2


def test_nothing_equal_is_written_twice(api: Any, make: Make) -> None:
    api.create()
    reporter = make()
    reporter.read_spec(DEADLINE)
    for _ in range(5):
        phase(reporter, "Load")
        assert reporter.flush(DEADLINE)
    assert api.phases() in (["Pending", "Load"], ["Load"])


def test_report_does_not_wait_for_an_api_server_that_hangs(api: Any, make: Make) -> None:
    api.create()
    reporter = make()
    reporter.read_spec(DEADLINE)
    assert reporter.flush(DEADLINE)
    returned = threading.Event()
    with api.changed:  # the server answers nothing while this is held

        def report() -> None:
            for name in ("Inventory", "Load", "Warm"):
                phase(reporter, name)
            returned.set()

        threading.Thread(target=report).start()
        assert returned.wait(DEADLINE)
    assert reporter.flush(DEADLINE)
    assert api.phases()[-1] == "Warm"


def test_a_recreated_object_gets_the_status_again(api: Any, make: Make) -> None:
    api.create(uid="rp-1")
    reporter = make(resync=0.05)
    reporter.read_spec(DEADLINE)
    phase(reporter, "Ready")
    assert reporter.flush(DEADLINE)
    api.create(uid="rp-2", generation=3)
    api.until(lambda: "status" in api.objects["pod-1"])
    assert api.objects["pod-1"]["status"]["phase"] == "Ready"


def test_a_write_to_a_recreated_object_finds_the_new_one(api: Any, make: Make) -> None:
    api.create(uid="rp-1")
    reporter = make()
    reporter.read_spec(DEADLINE)
    assert reporter.flush(DEADLINE)
    api.create(uid="rp-2", generation=4)
    phase(reporter, "Load")
    assert reporter.flush(DEADLINE)
    assert api.objects["pod-1"]["status"]["phase"] == "Load"
    assert reporter.read_spec(DEADLINE).generation == 4


def test_resync_writes_nothing_when_all_is_there(api: Any, make: Make) -> None:
    api.create()
    reporter = make(resync=0.02)
    reporter.read_spec(DEADLINE)
    api.until(lambda: api.calls.count("GET") >= 6)
    assert len(api.writes) == 1


def test_closing_writes_what_is_left_without_waiting_out_the_backoff(api: Any, make: Make, trouble: Any) -> None:
    api.create()
    reporter = make(backoff=Backoff(first=3600, most=3600, most_missing=3600))
    reporter.read_spec(DEADLINE)
    assert reporter.flush(DEADLINE)
    api.trouble("PATCH", trouble(503))
    phase(reporter, "Failed")
    api.until(lambda: api.calls.count("PATCH") == 2)
    reporter.close(timeout=DEADLINE)
    assert api.phases() == ["Pending", "Failed"]


def test_a_status_without_an_agent_is_stamped_with_this_boot(api: Any, make: Make) -> None:
    api.create()
    reporter = make()
    reporter.read_spec(DEADLINE)
    reporter.report(reporter.status.model_copy(update={"agent": None, "phase": "Load"}))
    assert reporter.flush(DEADLINE)
    assert api.writes[-1]["agent"]["version"] == "0.1.0"
    assert find(reporter.status.conditions, "Validated") is not None


@pytest.mark.parametrize(
    ("failures", "kwargs", "seconds"),
    [
        (1, {}, 0.2),
        (2, {}, 0.4),
        (8, {}, 25.6),
        (9, {}, 30.0),
        (10_000, {}, 30.0),
        (10_000, {"missing": True}, 5.0),
        (1, {"asked": 7.0}, 7.0),
        (1, {"asked": 3600.0}, 30.0),
        (9, {"asked": 1.0}, 30.0),
    ],
)
def test_backoff(failures: int, kwargs: dict[str, Any], seconds: float) -> None:
    assert Backoff().delay(failures, 0.0, **kwargs) == pytest.approx(seconds)
    assert seconds / 2 <= Backoff().delay(failures, 0.999, **kwargs) <= seconds
