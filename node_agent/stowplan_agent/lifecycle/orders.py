"""What rank 0 orders the other ranks to do, once all of them have started. JSON values."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from stowplan_agent.pipeline import PipelineRequest

RECALL: Final = {"recall": True}
"""Go back to the seed placement and prove it."""
END: Final = {"end": True}
"""Nothing more will be ordered."""


def to_serve(request: PipelineRequest) -> Any:
    """Run this request, of the same seed."""
    return {"serve": asdict(request)}


def request_of(order: Any) -> PipelineRequest:
    """The request of an order of `to_serve`."""
    return PipelineRequest(**order["serve"])
