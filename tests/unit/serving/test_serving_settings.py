"""What may be set of serving: a wrong value names its variable and what it may be."""

from __future__ import annotations

import pytest

from stowplan_agent.serving.settings import ServingSettings
from stowplan_api.model import ContractError


def test_nothing_set_is_the_default() -> None:
    assert ServingSettings.read({"STOWPLAN_QUEUE_LIMIT": " "}) == ServingSettings(16, 1 << 30, None, 30.0)


def test_everything_set() -> None:
    environment = {
        "STOWPLAN_QUEUE_LIMIT": "4",
        "STOWPLAN_RESULTS_SIZE": "2Gi",
        "STOWPLAN_REQUEST_DEADLINE": "600",
        "STOWPLAN_GRACE_SECONDS": "120",
    }
    assert ServingSettings.read(environment) == ServingSettings(4, 2 << 30, 600.0, 120.0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("STOWPLAN_QUEUE_LIMIT", "0"),
        ("STOWPLAN_QUEUE_LIMIT", "1.5"),
        ("STOWPLAN_QUEUE_LIMIT", "many"),
        ("STOWPLAN_QUEUE_LIMIT", "9" * 400),
        ("STOWPLAN_QUEUE_LIMIT", "9" * 5000),
        ("STOWPLAN_RESULTS_SIZE", "0"),
        ("STOWPLAN_RESULTS_SIZE", "big"),
        ("STOWPLAN_REQUEST_DEADLINE", "-1"),
        ("STOWPLAN_REQUEST_DEADLINE", "inf"),
        ("STOWPLAN_GRACE_SECONDS", "nan"),
    ],
)
def test_a_wrong_value_is_named(name: str, value: str) -> None:
    with pytest.raises(ContractError, match=name):
        ServingSettings.read({name: value})
