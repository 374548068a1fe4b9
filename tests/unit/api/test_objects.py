"""Objects as the API server returns them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from stowplan_api import ContractError
from stowplan_api.contract import SPEC_FIELDS_NOT_SENT, agent_account
from stowplan_api.diffusion_deployment import DiffusionDeploymentSpec, DiffusionDeploymentStatus
from stowplan_api.objects import DiffusionDeployment, ResidencyPlacement
from stowplan_api.residency_placement import ResidencyPlacementStatus, ValidationStatus
from stowplan_api.rules import NAME_LIMIT
from stowplan_api.status import seconds_for_people

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_read(path: Path) -> None:
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    deployment = DiffusionDeployment.from_json(data, source=path.name)
    assert deployment.metadata.name == path.stem
    assert DiffusionDeploymentSpec.model_validate(deployment.spec.to_json(exclude_none=True)) == deployment.spec


def test_metadata_of_a_server_is_read_for_what_is_needed() -> None:
    data = yaml.safe_load(EXAMPLES[0].read_text(encoding="utf-8"))
    data["metadata"] |= {"managedFields": [{"manager": "kubectl"}], "generation": 3, "annotations": {"a": "b"}}
    assert DiffusionDeployment.from_json(data).metadata.generation == 3


def test_an_unknown_field_of_a_spec_is_refused() -> None:
    data = yaml.safe_load(EXAMPLES[0].read_text(encoding="utf-8"))
    data["spec"]["residency"] = {"reserve": "1Gi"}
    with pytest.raises(ContractError, match=r"spec\.residency\.reserve: Extra inputs are not permitted"):
        DiffusionDeployment.from_json(data)


def test_a_status_is_written_with_words_and_read_back_without_them() -> None:
    proof = ValidationStatus(milliseconds=1250, reference_milliseconds=1300, peak_bytes=23 << 30, bit_equal=True)
    status = ResidencyPlacementStatus(validation=proof)
    written = status.to_json(exclude_none=True)
    assert (written["peak"], written["seconds"]) == ("23 GiB", "1.25s")
    assert ResidencyPlacementStatus.model_validate(written) == status


def test_a_status_without_numbers_has_no_words() -> None:
    assert not {"peak", "seconds"} & DiffusionDeploymentStatus().to_json(exclude_none=True).keys()


def test_words_follow_the_integer_they_repeat() -> None:
    status = DiffusionDeploymentStatus(peak_bytes=1 << 30).model_copy(update={"peak_bytes": 1 << 20})
    assert status.to_json()["peak"] == "1 MiB"


def test_a_placement_object_is_read() -> None:
    data: dict[str, Any] = {
        "apiVersion": "stowplan.dev/v1alpha1",
        "kind": "ResidencyPlacement",
        "metadata": {"name": "wan22-0", "uid": "u"},
        "spec": {
            "deployment": "wan22",
            "pod": {"name": "wan22-0", "uid": "p"},
            "generation": 1,
            "limits": {"memoryBytes": 1},
        },
    }
    placement = ResidencyPlacement.from_json(data)
    assert placement.status.phase == "Pending"
    assert placement.spec.limits.device_memory_bytes is None


def test_the_fields_that_are_not_sent_are_fields() -> None:
    names = {info.alias for info in DiffusionDeploymentSpec.model_fields.values()}
    assert set(SPEC_FIELDS_NOT_SENT) <= names


def test_the_longest_name_leaves_room_for_pod_suffixes() -> None:
    # A pod of a Deployment is NAME-HASH-SUFFIX: 1 + 10 + 1 + 5 characters more, and labels end at 63.
    assert NAME_LIMIT + 17 <= 63
    assert len(agent_account("x" * NAME_LIMIT)) <= 63


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0, "0.000s"), (42, "0.042s"), (1254, "1.25s"), (83_440, "83.4s"), (1_234_000, "1234s")],
)
def test_seconds_have_three_digits_that_matter(milliseconds: int, text: str) -> None:
    assert seconds_for_people(milliseconds) == text
