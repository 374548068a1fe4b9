"""An API server that dies and comes back: the operator is told by its watches again, and is the same process."""

from __future__ import annotations

from cluster.played import Operator, Studio, deployment
from localcluster import build, process, waiting
from localcluster.addresses import API_SERVER
from localcluster.control_plane import API_DEADLINE_S, api_server_command
from localcluster.layout import Layout
from localcluster.versions import KUBERNETES

SERVER = "kube-apiserver"


def restarted(layout: Layout) -> None:
    """Killed, without time to say goodbye to whoever watches; and ready again."""
    process.end([process.recorded(layout)[SERVER]], grace_s=0)
    process.start(layout, SERVER, api_server_command(layout, build.directory(layout, KUBERNETES)))
    context = waiting.administrator(layout)
    ready = f"{API_SERVER}/readyz"
    waiting.until(layout, SERVER, "being ready", lambda: waiting.answers(ready, context), API_DEADLINE_S)


def test_gates_follow_after_the_api_server_was_killed(studio: Studio, operator: Operator) -> None:
    layout, before = studio.cluster.local, operator.pid
    assert layout is not None
    studio.apply(deployment())
    pod = studio.running_pod()
    restarted(layout)
    # The next full list is minutes away, so whatever is heard now is heard by a watch.
    studio.agent_says(pod, "True")
    studio.wait_gate(pod, "True")
    studio.agent_says(pod, "False", phase="Warm")
    studio.wait_gate(pod, "False")
    studio.wait_condition("dd/tiny", "Ready", "False")
    assert operator.pid == before
    assert operator.healthy()
    assert "Traceback" not in operator.log()
