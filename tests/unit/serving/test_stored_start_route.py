"""The stored start of this boot over HTTP: what the operator hands to the next pods."""

from __future__ import annotations

import httpx

from stowplan_agent.serving.app import ServingDefaults, create_app
from stowplan_agent.serving.door import Door
from stowplan_agent.serving.metrics import AgentMetrics
from stowplan_agent.serving.queue import RequestQueue
from stowplan_agent.serving.server import start_server
from stowplan_api.contract import STORED_START_PATH

DEADLINE = 20.0
IMAGE = ServingDefaults(model="tiny-flux", kind="image", width=64, height=32, steps=4)


def test_it_is_given_as_its_file_has_it_once_there_is_one() -> None:
    texts: list[str] = []
    queue = RequestQueue()
    app = create_app(Door(), queue, AgentMetrics(), IMAGE, stored=lambda: texts[0] if texts else None)
    server = start_server(app, 0)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=DEADLINE, trust_env=False) as client:
            missing = client.get(STORED_START_PATH)
            assert missing.status_code == 404
            message = missing.json()["error"]["message"]
            assert "this boot has no stored start" in message
            assert "STOWPLAN_RECORD_DIR" in message
            texts.append('{"fingerprint": "ab"}\n')
            found = client.get(STORED_START_PATH)
            assert (found.status_code, found.text) == (200, texts[0])
            assert found.headers["content-type"] == "application/json"
    finally:
        assert queue.stop(DEADLINE)
        assert server.stop()
