"""SIGUSR1 to an agent that serves a plan: the door shuts, the seed placement is proven, and what waited is served."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

from starts import settings_of
from stowplan_agent.lifecycle.agent import Agent
from stowplan_agent.serving.requests import GenerationRequest

DEADLINE = 300.0
REQUEST = GenerationRequest("video", "a boat", None, 32, 32, 1, 1, 7, None)


def test_sigusr1_takes_a_serving_plan_back(tiny_wan: Path, port: int) -> None:
    agent = Agent(settings_of(tiny_wan, "40Mi", shapes=["32x32x1@1"], spec={"serving": {"port": port}}), None)
    seen: dict[str, object] = {}

    def sample(name: str) -> float:
        return sum(
            one.value for metric in agent.metrics.registry.collect() for one in metric.samples
            if one.name == f"stowplan_{name}"
        )  # fmt: skip

    def until(holds: Callable[[], bool]) -> None:
        pause = threading.Event()
        for _ in range(int(DEADLINE / 0.05)):
            if holds():
                return
            pause.wait(0.05)
        raise AssertionError("the agent did not get there")

    def play() -> None:
        try:
            until(lambda: agent.door.open)
            seen["first"] = agent.door.phase
            seen["planned"] = sample("component_bytes")
            os.kill(os.getpid(), signal.SIGUSR1)
            until(lambda: agent.door.phase == "RolledBack" and agent.door.open)
            job = agent.queue.submit(REQUEST)
            seen["served"] = job.wait(DEADLINE) and job.error is None
            seen["rollbacks"] = sample("rollbacks_total")
            os.kill(os.getpid(), signal.SIGUSR1)  # once more changes nothing
        finally:
            # To this thread, as the kernel may do with one of two that come at once: it does not wake the main thread.
            signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    player = threading.Thread(target=play)
    player.start()
    assert agent.run() == 0
    player.join(DEADLINE)
    assert (seen["first"], seen["served"], seen["rollbacks"]) == ("Ready", True, 1)
    assert not agent.door.open
