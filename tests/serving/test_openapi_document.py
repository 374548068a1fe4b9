"""Every answer is one that the OpenAPI document has, whatever is asked: schemathesis draws requests from the document.

It draws good and bad ones, fields left out, of the wrong type and beside the contract. Ids are drawn too, which hardly
ever meet a job, so every other request asks for one that is there.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import httpx
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode, checks

from serving.agents import DEADLINE, ServedAgent

CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
    checks.unsupported_method,
]
"""Not that all data of the schema are accepted: the model's own contract of sizes and frames is no JSON schema."""
DRAWN = settings(
    max_examples=8, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
MODES = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)


def test_an_agent_of_images(image_agent: ServedAgent) -> None:
    body = {"prompt": "a", "steps": 1, "response_format": "url", "size": "32x32"}

    def made() -> str | None:
        answer = httpx.post(f"{image_agent.url}/v1/images/generations", json=body, trust_env=False, timeout=DEADLINE)
        return str(answer.json()["data"][0]["url"].split("/")[-3])

    hold_to_document(image_agent.url, {"image_id": made}, image_agent.idle)


def test_an_agent_of_videos(video_agent: ServedAgent) -> None:
    body = {"prompt": "a", "steps": 1, "frames": 1}

    def made() -> str:
        return str(httpx.post(f"{video_agent.url}/v1/videos", json=body, trust_env=False).json()["id"])

    hold_to_document(video_agent.url, {"video_id": made}, video_agent.idle)


def hold_to_document(url: str, known: dict[str, Callable[[], str | None]], idle: Callable[[], bool]) -> None:
    """Ask each operation of the document; every other time with an id that ``known`` makes."""
    every_other = itertools.cycle([True, False])
    seen: dict[str, set[int]] = {}

    def ask(case: schemathesis.Case) -> None:
        if isinstance(case.body, dict) and isinstance(case.body.get("steps"), int) and case.body["steps"] > 2:
            case.body["steps"] = 2  # as good as any other, and sooner done
        for name in set(case.path_parameters or {}) & set(known):
            if next(every_other):
                case.path_parameters |= (
                    {name: known[name](), "index": 0} if name == "image_id" else {name: known[name]()}
                )
        assert idle()
        answer = case.call_and_validate(checks=CHECKS, timeout=DEADLINE)
        seen.setdefault(case.operation.label, set()).add(answer.status_code)

    document = schemathesis.openapi.from_url(f"{url}/openapi.json")
    for result in document.get_all_operations():
        operation = result.ok()
        for mode in MODES:
            if mode is GenerationMode.POSITIVE or takes_something(operation):
                DRAWN(given(case=operation.as_strategy(generation_mode=mode))(ask))()
    assert all(seen[operation.ok().label] for operation in document.get_all_operations())


def takes_something(operation: Any) -> bool:
    """Whether there is anything to get wrong."""
    return bool(operation.body or operation.query or operation.headers)
