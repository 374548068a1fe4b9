"""Fleet reuse: what one pod proved is there for the next, a recalibration voids it, and nothing depends on it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from decisions import decided, running, written
from observations import KEY, ago, condition, deployment_of_user, placement, pod, proven_start, template

from stowplan_api.contract import ANNOTATION_RECALIBRATE, ANNOTATION_STORED_BY
from stowplan_operator.kinds import Json
from stowplan_operator.starts import LARGEST, checked, fitting

CARD_A, CARD_B = "a" * 32, "b" * 32


def start_of(fingerprint: str, proven_at: str = ago(60), size: int = 0) -> bytes:
    return json.dumps({"fingerprint": fingerprint, "provenAt": proven_at, "record": "x" * size}).encode()


def kept(dd: Json, stored_by: str = "", recalibrate: str = "") -> Json:
    """The ConfigMap as it is listed: metadata only."""
    annotations = {ANNOTATION_STORED_BY: stored_by, ANNOTATION_RECALIBRATE: recalibrate}
    metadata = {
        "name": "wan-starts",
        "namespace": KEY.namespace,
        "uid": "starts-uid",
        "resourceVersion": "1",
        "labels": {"stowplan.dev/deployment": dd["metadata"]["name"]},
        "ownerReferences": [{"kind": dd["kind"], "name": dd["metadata"]["name"], "uid": dd["metadata"]["uid"]}],
        "annotations": {key: value for key, value in annotations.items() if value},
    }
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


def asking(value: str, **status: Any) -> Json:
    dd = deployment_of_user(status={"conditions": [condition("Ready", "True", "RolledOut")], **status})
    if value:
        dd["metadata"]["annotations"][ANNOTATION_RECALIBRATE] = value
    return dd


WITH_IP = {"podIP": "10.1.2.3"}


@pytest.mark.parametrize(
    ("found", "address", "expected"),
    [
        (proven_start(), WITH_IP, ["wan-7d4-abc"]),
        (proven_start(), {}, []),
        (proven_start(validated="False"), WITH_IP, []),
        (proven_start(started=400), WITH_IP, []),
        (placement(conditions=(condition("Calibrated", "True", "Reused"),)), WITH_IP, []),
        (placement(conditions=(condition("Calibrated", "True", "Extrapolated"),)), WITH_IP, []),
        (proven_start(conditions=(condition("RolledBack", "True", "TooSlow"),)), WITH_IP, []),
    ],
    ids=["proven", "no address", "not validated", "earlier boot", "reused", "extrapolated", "rolled back"],
)
def test_only_a_boot_that_measured_and_proved_a_plan_is_asked(found: Json, address: Json, expected: list[str]) -> None:
    dd = deployment_of_user()
    decision = decided(*running(dd, pod(dd, **address)), found)
    assert [start.pod for start in decision.fetch.starts] == expected if decision.fetch else expected == []


def test_a_mode_that_does_not_plan_stores_nothing() -> None:
    dd = deployment_of_user(residency={"mode": "Static"})
    assert decided(*running(dd, pod(dd, **WITH_IP)), proven_start()).fetch is None


def test_only_what_is_newer_than_what_is_kept_is_fetched() -> None:
    dd = deployment_of_user(replicas=2)
    pods = [pod(dd, **WITH_IP), pod(dd, "wan-7d4-xyz", uid="uid-2", **WITH_IP)]
    starts = [proven_start(age=60), proven_start("wan-7d4-xyz", pod_uid="uid-2", age=30)]
    objects = [*running(dd, *pods), *starts]
    for stamp, expected in [("", 2), (f"{ago(60)} wan-7d4-abc boot", 1), (f"{ago(30)} wan-7d4-xyz boot", 0)]:
        fetch = decided(*objects, kept(dd, stamp)).fetch
        assert (len(fetch.starts) if fetch else 0) == expected


def test_a_recalibration_makes_new_pods_and_voids_what_is_kept_first() -> None:
    before, after = asking(""), asking("monday")
    assert template(before) != template(after)
    decision = decided(after, *running(before, pod(before))[1:], proven_start(), kept(before, "stamp"))
    assert [write.manifest["kind"] for write in decision.children] == ["Deployment"]
    made = decision.children[0].manifest["spec"]["template"]["metadata"]
    assert made["annotations"] == {ANNOTATION_RECALIBRATE: "monday"}
    assert decision.voided_starts is not None
    assert "data" not in decision.voided_starts
    assert decision.voided_starts["metadata"]["annotations"] == {ANNOTATION_RECALIBRATE: "monday"}


def test_a_config_map_of_somebody_else_is_not_emptied() -> None:
    before, after = asking(""), asking("monday")
    theirs = kept(before, "stamp")
    theirs["metadata"]["ownerReferences"] = []
    assert decided(after, *running(before, pod(before))[1:], proven_start(), theirs).voided_starts is None


def test_its_echo_comes_when_every_pod_has_done_it_and_stays_when_the_annotation_goes() -> None:
    dd = asking("monday")
    waiting = decided(*running(dd, pod(dd, gate="False", ready=False)), placement(validated="False"))
    assert waiting.status is not None
    assert "recalibrated" not in waiting.status["status"]
    objects = [*running(dd, pod(dd)), placement(), kept(dd, "", "monday")]
    done = written(objects, decided(*objects))
    assert done[0]["status"]["recalibrated"] == "monday"
    del done[0]["metadata"]["annotations"][ANNOTATION_RECALIBRATE]
    assert not decided(*done), "taking the annotation away restarts nothing"


def test_a_paused_deployment_recalibrates_when_it_goes_on() -> None:
    before = asking("")
    after = deployment_of_user(paused=True)
    after["metadata"]["annotations"][ANNOTATION_RECALIBRATE] = "monday"
    decision = decided(after, *running(before, pod(before))[1:], placement(), kept(before, "stamp"))
    assert decision.children == ()
    assert decision.voided_starts is None


@pytest.mark.parametrize("value", ["x" * 129, "ü" * 5000])
def test_a_long_value_is_known_by_its_digest(value: str) -> None:
    dd = asking(value)
    (made,) = [write.manifest for write in decided(dd).children if write.manifest["kind"] == "Deployment"]
    assert len(made["spec"]["template"]["metadata"]["annotations"][ANNOTATION_RECALIBRATE]) == 10


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"fingerprint": "../../etc"}', b'{"fingerprint": 7}', b"\xff"])
def test_what_is_no_stored_start_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        checked(data)


def test_as_many_as_a_config_map_takes_are_kept_and_the_newest() -> None:
    files = {f"{number}.json": start_of(CARD_A, ago(number), LARGEST // 3).decode() for number in range(1, 6)}
    assert sorted(fitting(files)) == ["1.json", "2.json"]
