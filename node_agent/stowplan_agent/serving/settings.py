"""What may be set of serving, from the environment: how much waits, how much is kept, and how long it may take."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from stowplan_agent.serving.queue import QUEUE_LIMIT
from stowplan_agent.serving.shelf import MOST_BYTES
from stowplan_api.model import ContractError
from stowplan_api.quantity import parse_quantity

QUEUE: Final = "STOWPLAN_QUEUE_LIMIT"
RESULTS: Final = "STOWPLAN_RESULTS_SIZE"
DEADLINE: Final = "STOWPLAN_REQUEST_DEADLINE"
GRACE: Final = "STOWPLAN_GRACE_SECONDS"


@dataclass(frozen=True)
class ServingSettings:
    """As set, or by default."""

    queue_limit: int = QUEUE_LIMIT
    """Requests that may wait."""
    results_bytes: int = MOST_BYTES
    """Bytes on disk that videos and images by URL may take."""
    deadline: float | None = None
    """Seconds that a request may take, waiting included; None for as long as it takes."""
    grace: float = 30.0
    """Seconds from SIGTERM to SIGKILL: terminationGracePeriodSeconds of the pod, of which Kubernetes' default is 30."""

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> ServingSettings:
        """Settings of an environment. Raises `ContractError` naming the variable and what it may be."""
        default = cls()
        deadline = _number(environment, DEADLINE, math.inf)
        return cls(
            queue_limit=int(_number(environment, QUEUE, default.queue_limit, whole=True)),
            results_bytes=_bytes(environment, RESULTS, default.results_bytes),
            deadline=None if math.isinf(deadline) else deadline,
            grace=_number(environment, GRACE, default.grace),
        )


def _number(environment: Mapping[str, str], name: str, default: float, *, whole: bool = False) -> float:
    text = environment.get(name, "").strip()
    if not text:
        return default
    try:
        value = float(int(text) if whole else float(text))
    except (ValueError, OverflowError):
        value = math.nan
    if not 0 < value < math.inf:
        raise ContractError(f"{name} is {text[:40]!r}; write a positive {'whole number' if whole else 'number'}")
    return value


def _bytes(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, "").strip()
    if not text:
        return default
    try:
        value = parse_quantity(text)
    except ValueError as error:
        raise ContractError(f"{name}: {error}") from None
    if value <= 0:
        raise ContractError(f"{name} is {text[:40]!r}; write a size such as 1Gi")
    return value
