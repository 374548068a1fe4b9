"""200 requests of all kinds at once, cancelled, hung up on, half read, refused: afterwards everything is as before.

What is counted: files, tasks on the event loop, threads, open descriptors, jobs and results that are still referenced,
device bytes to the byte, the ledger against the allocator, and what the process holds of the host's memory.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import random
import socket
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from serving.agents import DEADLINE, ServedAgent
from stowplan_agent.serving.jobs import Job
from stowplan_agent.serving.requests import GenerationResult

SMALL = {"prompt": "a", "steps": 1, "size": "32x32"}
CLIENTS = 5
WARM, MEASURED = 50, 200
"""Requests before the first count, whose first uses of everything are no leak, and after it."""
Play = Callable[[httpx.Client, ServedAgent, random.Random], str]


# What clients do


def hang_up(agent: ServedAgent, path: str, body: dict[str, Any], sent: int | None = None, read: int = 0) -> str:
    """Send a request, or ``sent`` bytes of it, read at most so many bytes of the answer, and go."""
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", agent.port), timeout=DEADLINE) as connection:
        connection.sendall((head.encode() + data)[:sent])
        if read:
            connection.recv(read)
    return "hung up"


def create(client: httpx.Client, **fields: Any) -> str | None:
    """Where the video is; None where the queue stays full."""
    answer = patiently(client, "/v1/videos", SMALL | {"frames": 1} | fields)
    return f"/v1/videos/{answer.json()['id']}" if answer.status_code == 200 else None


def patiently(client: httpx.Client, path: str, body: dict[str, Any]) -> httpx.Response:
    """Ask again a few times where the queue is full."""
    pause = threading.Event()
    for _ in range(4):
        answer = client.post(path, json=body)
        if answer.status_code != 429:
            break
        pause.wait(0.25)
    return answer


def fetch(client: httpx.Client, agent: ServedAgent, chance: random.Random) -> str:
    if (made := create(client, frames=chance.choice([1, 5]))) is None:
        return "full"
    with client.stream("GET", f"{made}/events") as events:
        events.read()
    part = {"Range": chance.choice(["bytes=0-9", "bytes=-9", "bytes=99999999-", ""])}
    head = client.head(f"{made}/content").status_code
    return f"head {head}, content {client.get(f'{made}/content', headers=part).status_code}"


def follow_and_go(client: httpx.Client, agent: ServedAgent, chance: random.Random) -> str:
    if (made := create(client, steps=3)) is None:
        return "full"
    with client.stream("GET", f"{made}/events") as events:
        next(events.iter_lines())
    return "stopped following"


def cancel(client: httpx.Client, agent: ServedAgent, chance: random.Random) -> str:
    if (made := create(client, steps=4)) is None:
        return "full"
    return f"cancel {client.post(f'{made}/cancel').status_code}"


def delete(client: httpx.Client, agent: ServedAgent, chance: random.Random) -> str:
    if (made := create(client, steps=2)) is None:
        return "full"
    return f"delete {client.delete(made).status_code}"


def late(client: httpx.Client, agent: ServedAgent, chance: random.Random) -> str:
    return "full" if create(client, steps=20, deadline=0.01) is None else "late"


def image(client: httpx.Client, agent: ServedAgent, chance: random.Random) -> str:
    fields = chance.choice([{}, {"n": 2}, {"response_format": "url"}, {"stream": True}])
    return f"image {patiently(client, '/v1/images/generations', SMALL | fields).status_code}"


def repeat(client: httpx.Client, agent: ServedAgent, chance: random.Random) -> str:
    images = "flux" in str(agent.start.settings.spec.model.source)
    path, number = "/v1/images/generations" if images else "/v1/videos", chance.randrange(5)
    body = SMALL | ({"stream": True} if images and number == 4 else {})
    return f"repeat {client.post(path, json=body, headers={'Idempotency-Key': f'key-{number}'}).status_code}"


def leave_images(client: httpx.Client, agent: ServedAgent, chance: random.Random) -> str:
    return hang_up(agent, "/v1/images/generations", SMALL | {"steps": 4, "stream": chance.random() < 0.5})


def leave_streamed_images(client: httpx.Client, agent: ServedAgent, chance: random.Random) -> str:
    return hang_up(agent, "/v1/images/generations", SMALL | {"steps": 4, "stream": True}, read=64)


def leave_within_the_body(client: httpx.Client, agent: ServedAgent, chance: random.Random) -> str:
    return hang_up(agent, "/v1/images/generations", SMALL, sent=chance.randrange(20, 150))


def mistake(client: httpx.Client, agent: ServedAgent, chance: random.Random) -> str:
    body = chance.choice([{"size": "4x4"}, {"size": "2048x2048"}, {"steps": 0}, {"prompt": None}, {"colour": "red"}])
    path = chance.choice(["/v1/images/generations", "/v1/videos"])
    return f"mistake {client.post(path, json=SMALL | body).status_code}"


IMAGES: list[Play] = [image, image, repeat, leave_images, leave_streamed_images, leave_within_the_body, mistake]
VIDEOS: list[Play] = [fetch, fetch, follow_and_go, cancel, delete, late, repeat, mistake]


# What is counted


def settled(agent: ServedAgent) -> dict[str, Any]:
    """Everything that a leak would show in, once nothing moves any more."""
    pause = threading.Event()
    last: dict[str, Any] = {}
    for _ in range(int(DEADLINE / 0.1)):
        assert agent.idle()
        now = {
            "tasks": agent.tasks(),
            "threads": Counter(one.name for one in threading.enumerate() if "AnyIO" not in one.name),
            "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        }
        if now == last and now["tasks"] == 0:
            return now | {"device": agent.device_bytes(), "results": referenced(GenerationResult)}
        last = now
        pause.wait(0.1)
    raise AssertionError(f"it never came to rest: {last}")


def referenced(kind: type) -> int:
    """Objects of a type that somebody holds."""
    gc.collect()
    return sum(type(one) is kind for one in gc.get_objects())


def clear(agent: ServedAgent) -> None:
    """Take everything off the shelf, as clients and time would."""
    shelf = agent.queue.shelf
    kept = [path for files in shelf._files.values() for path in files]
    assert sorted(agent.files()) == sorted(kept)
    assert sum(path.stat().st_size for path in kept) == shelf.held_bytes
    for name in list(shelf._jobs):
        shelf.take(name)


def resident_bytes() -> int:
    """What the process holds, less what its allocator could give back."""
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def play(agent: ServedAgent, plays: list[Play], count: int, seed: int) -> Counter[str]:
    def one(number: int) -> str:
        chance = random.Random(seed * 1000 + number)
        with httpx.Client(base_url=agent.url, timeout=DEADLINE, trust_env=False) as client:
            return chance.choice(plays)(client, agent, chance)

    with ThreadPoolExecutor(CLIENTS) as clients:
        return Counter(clients.map(one, range(count)))


@pytest.mark.parametrize("kind", ["images", "videos"])
def test_nothing_is_left_of_200_requests(kind: str, request: pytest.FixtureRequest) -> None:
    agent: ServedAgent = request.getfixturevalue(f"{kind[:-1]}_agent")
    plays, fields = (IMAGES, {}) if kind == "images" else (VIDEOS, {"frames": 1})
    canonical = agent.start.request(**fields, steps=1)

    def counted(count: int, seed: int) -> tuple[dict[str, Any], int, Counter[str]]:
        ends = play(agent, plays, count, seed)
        for _ in range(2):  # what the last request leaves in the scheduler is the same
            assert agent.idle() and agent.queue.submit(canonical).wait(DEADLINE)
        clear(agent)
        return settled(agent), resident_bytes(), ends

    before, held, _ = counted(WARM, 1)
    jobs = referenced(Job)
    after, holds, ends = counted(MEASURED // 2, 2)
    assert after == before, ends
    assert agent.files() == []
    assert referenced(Job) <= jobs + 5  # those of the five keys
    agent.start.startup.prepared.session.check()
    assert holds - held < 0.02 * held, f"{(holds - held) >> 10} KiB of {held >> 20} MiB"
    assert len(ends) > len(set(plays)) // 2
    assert not [end for end in ends if end.endswith(("500", "503"))]
