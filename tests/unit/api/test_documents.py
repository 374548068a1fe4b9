"""Documents: what is wrong with one is said in one sentence that names the source, the field and the value."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stowplan_api import CalibrationRecord, ContractError, Placement

RECORD: dict[str, Any] = {
    "apiVersion": "stowplan.dev/v1alpha1",
    "kind": "CalibrationRecord",
    "model": {"name": "m", "pipeline": "WanPipeline", "fingerprint": "f"},
    "workloads": [{"name": "clip", "width": 64, "height": 64, "frames": 5, "steps": 2}],
    "nodes": [{"name": "n", "pinnableBytes": 100, "hostBytes": 100}],
    "ranks": [
        {
            "rank": 0,
            "node": "n",
            "device": "d",
            "capacityBytes": 100,
            "outsideBytes": 0,
            "link": {
                "pinnedBytesPerSecond": 1.0,
                "pageableBytesPerSecond": 1.0,
                "latencySeconds": 0,
                "contention": 1,
            },
        }
    ],
    "components": [{"name": "transformer", "looseBytes": 1, "groups": [{"name": "blocks", "layerBytes": [1, 2]}]}],
    "intervals": [
        {
            "component": "transformer",
            "entry": "forward",
            "runs": [
                {
                    "workload": "clip",
                    "passes": 2,
                    "activationBytes": [1],
                    "looseSeconds": 0.1,
                    "layerSeconds": {"blocks": [0.1, 0.1]},
                }
            ],
        }
    ],
}
PLACEMENT: dict[str, Any] = {
    "apiVersion": "stowplan.dev/v1alpha1",
    "kind": "Placement",
    "components": [
        {
            "name": "transformer",
            "mode": "Layerwise",
            "looseLifetime": "Permanent",
            "groups": [{"name": "blocks", "residentLayers": 1, "pinnedLayers": [1]}],
        },
        {"name": "vae", "mode": "Offload", "prefetch": True, "pinnedBytes": [1]},
    ],
}

Change = Callable[[dict[str, Any]], object]

RECORD_CHANGES: list[tuple[Change, str]] = [
    (lambda d: d.update(kind="Plan"), "field kind"),
    (lambda d: d.update(apiVersion="stowplan.dev/v2"), "field apiVersion"),
    (lambda d: d.update(color=1), "field color: Extra inputs are not permitted"),
    (lambda d: d.pop("nodes"), "field nodes: Field required"),
    (
        lambda d: d["components"].append(d["components"][0]),
        r"components\[1\]\.name: component transformer is listed twice; list each once",
    ),
    (lambda d: d["workloads"].append(d["workloads"][0]), "workload .* is listed twice"),
    (
        lambda d: d["workloads"].append(d["workloads"][0] | {"name": "other"}),
        r"intervals\[0\]\.runs: no run of workload other; give 0 passes",
    ),
    (lambda d: d["nodes"].append(d["nodes"][0]), "node .* is listed twice"),
    (lambda d: d["ranks"].append(d["ranks"][0]), r"ranks\[1\]\.rank: rank 0 is listed twice"),
    (
        lambda d: d["components"][0]["groups"].append(d["components"][0]["groups"][0]),
        r"components\[0\]\.groups\[1\]\.name: component transformer: group blocks is listed twice",
    ),
    (
        lambda d: d["intervals"][0]["runs"].append(d["intervals"][0]["runs"][0]),
        r"intervals\[0\]\.runs\[1\]\.workload: the run of workload .* is listed twice",
    ),
    (
        lambda d: d["ranks"][0].update(capacityBytes=(1 << 63) - 1),
        "capacityBytes: .*less than or equal to 70368744177664",
    ),
    (lambda d: d["components"][0].update(looseBytes=64 << 40), "transformer has more than 64 TiB of weights"),
    (lambda d: d["ranks"][0].update(node="other"), r"ranks\[0\]\.node: nodes does not list node other; give one of n$"),
    (lambda d: d["ranks"][0].update(capacityBytes=-1), "capacityBytes: .*greater than or equal to 0 .it is -1"),
    (lambda d: d["ranks"][0].update(capacityBytes=1.5), r"capacityBytes: .*integer.*it is 1\.5"),
    (lambda d: d["ranks"][0].update(capacityBytes="1"), "capacityBytes: .*integer"),
    (
        lambda d: d["ranks"][0]["link"].update(pinnedBytesPerSecond=0),
        r"ranks\[0\]\.link\.pinnedBytesPerSecond: .*greater than or equal to 1",
    ),
    (lambda d: d["ranks"][0]["link"].update(latencySeconds=float("nan")), "latencySeconds"),
    (
        lambda d: d["intervals"][0].update(component="vae"),
        r"intervals\[0\]\.component: components does not list component vae",
    ),
    (
        lambda d: d["intervals"][0]["runs"][0].update(workload="x"),
        r"intervals\[0\]\.runs\[0\]\.workload: workloads does not list workload x",
    ),
    (
        lambda d: d["intervals"][0]["runs"][0].update(activationBytes=[1, 2]),
        r"intervals\[0\]\.runs\[0\]\.activationBytes: 2 activationBytes for 1 ranks",
    ),
    (
        lambda d: d["intervals"][0]["runs"][0].update(layerSeconds={"blocks": [0.1]}),
        r"intervals\[0\]\.runs\[0\]\.layerSeconds\.blocks: 1 layerSeconds for 2 layers",
    ),
    (
        lambda d: d["intervals"][0]["runs"][0].update(layerSeconds={"x": [0.1]}),
        r"layerSeconds\.x: component transformer does not list group x; give one of blocks",
    ),
    (lambda d: d["workloads"][0].update(width=10**9), "width: .*less than or equal to 16384"),
    (lambda d: d["workloads"][0].update(steps="2"), r"workloads\[0\]\.steps: .*integer .it is '2'"),
    (lambda d: d["workloads"][0].update(tiling="no"), r"workloads\[0\]\.tiling: .*boolean"),
    (lambda d: d["components"][0].update(name="a\nb"), r"components\[0\]\.name: a name is one line"),
    (lambda d: d["intervals"][0].update(component=None), r"layerSeconds\.blocks: group blocks in an interval of no"),
    (
        lambda d: d["components"].append(
            {"name": "vae", "looseBytes": 1, "fixed": {"mode": "Layerwise", "reason": ""}}
        ),
        r"components\[1\]\.fixed\.mode: component vae is fixed to Layerwise but has no repeated layers",
    ),
    (lambda d: d.update({"a b\n": 1}), r'field \["a b\\n"\]: Extra inputs'),
]
PLACEMENT_CHANGES: list[tuple[Change, str]] = [
    (lambda d: d.update(kind="CalibrationRecord"), "field kind"),
    (
        lambda d: d["components"].append(d["components"][0]),
        r"components\[2\]\.name: component transformer is listed twice; give each component",
    ),
    (
        lambda d: d["components"][0].update(mode="Resident"),
        r"components\[0\]\.groups: component transformer: groups belongs to mode Layerwise, not Resident",
    ),
    (lambda d: d["components"][0].pop("groups"), "mode Layerwise needs at least one group of layers"),
    (
        lambda d: d["components"][1].update(mode="Resident"),
        r"components\[1\]\.prefetch: component vae: prefetch belongs to mode Offload, not Resident",
    ),
    (lambda d: d["components"][1].update(mode="Swap"), "mode: .*'Resident', 'Offload' or 'Layerwise'.*it is 'Swap'"),
    (
        lambda d: d["components"][0]["groups"].append(d["components"][0]["groups"][0]),
        r"components\[0\]\.groups\[1\]\.name: .*group blocks is listed twice",
    ),
    (lambda d: d["components"][0]["groups"][0].update(residentLayers=-1), "residentLayers: .*greater than or equal"),
    (lambda d: d["components"][0]["groups"][0].update(residentLayers=True), "residentLayers"),
    (lambda d: d["components"][0]["groups"][0].update(slots=1), "slots: .*greater than or equal to 2"),
    (lambda d: d["components"][0]["groups"][0].update(slots=4), "slots: .*less than or equal to 3"),
]


@pytest.mark.parametrize(("change", "message"), RECORD_CHANGES)
def test_a_wrong_record_is_refused(change: Change, message: str) -> None:
    data = copy.deepcopy(RECORD)
    change(data)
    with pytest.raises(ContractError, match=message) as refusal:
        CalibrationRecord.from_json(data, source="record.json")
    assert str(refusal.value).startswith("record.json: CalibrationRecord field ")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(("change", "message"), PLACEMENT_CHANGES)
def test_a_wrong_placement_is_refused(change: Change, message: str) -> None:
    data = copy.deepcopy(PLACEMENT)
    change(data)
    with pytest.raises(ContractError, match=message) as refusal:
        Placement.from_json(data, source="placement.json")
    assert str(refusal.value).startswith("placement.json: Placement field ")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(("kind", "data"), [(CalibrationRecord, RECORD), (Placement, PLACEMENT)])
def test_a_good_document_survives_json(kind: type[CalibrationRecord] | type[Placement], data: dict[str, Any]) -> None:
    document = kind.from_json(data)
    again = kind.from_json(json.loads(json.dumps(document.to_json())))
    assert again == document
    assert again.canonical() == document.canonical()


def test_several_problems_are_one_sentence_and_a_count() -> None:
    data = copy.deepcopy(RECORD)
    del data["nodes"], data["ranks"]
    with pytest.raises(ContractError, match=r"field nodes: Field required; 1 more like this$"):
        CalibrationRecord.from_json(data)


@pytest.mark.parametrize("data", [None, [], "text", 3])
def test_what_is_not_an_object_is_refused(data: object) -> None:
    with pytest.raises(ContractError, match=r"^placement: Placement field Placement: "):
        Placement.from_json(data, source="placement")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read .No such file or directory.; give the path of a Placement"),
        (b"{", "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b"[]", "Placement field Placement"),
    ],
)
def test_a_file_that_is_no_document_is_refused(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "placement.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ContractError, match=message) as refusal:
        Placement.read(path)
    assert str(refusal.value).startswith(str(path))


def test_a_value_cannot_be_changed() -> None:
    placement = Placement.from_json(PLACEMENT)
    with pytest.raises(ValueError, match="frozen"):
        placement.components = ()  # type: ignore[misc]


@pytest.mark.parametrize(
    "text", [b"", b"{", b"\xff\xfe", b"9" * 5000, b"[" * 100_000, b'{"a":' * 100_000, b'{"a": 1, "a": 1}']
)
def test_a_file_that_is_not_json_is_one_sentence(text: bytes, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_bytes(text)
    with pytest.raises(
        ContractError, match=r"record\.json: is not JSON .*give the path of a CalibrationRecord"
    ) as refusal:
        CalibrationRecord.read(path)
    assert "\n" not in str(refusal.value)
