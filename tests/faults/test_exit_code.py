"""How the agent's process ends when not even the rollback works."""

from __future__ import annotations

import socket
from contextlib import closing
from pathlib import Path

from starts import settings_of
from stowplan_agent.lifecycle.agent import Agent
from stowplan_api.contract import ROLLBACK_FAILED_EXIT


def test_a_failed_rollback_ends_the_process_with_its_own_code(checkpoint: Path, port: int) -> None:
    settings = settings_of(checkpoint, "40Mi", faults="validate.output,rollback", spec={"serving": {"port": port}})
    agent = Agent(settings, None)
    assert agent.run() == ROLLBACK_FAILED_EXIT == 70
    assert not agent.door.open
    with closing(socket.socket()) as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0  # nobody listens any more
