"""The sharpest rows of the gate's table on a real kubelet, with real kills, told alike by all who may be asked.

Each story walks one pod through its rows; after every step the gate, `kubectl get`, `kubectl wait`, `kubectl rollout
status` and kstatus' rules must say the same. /health of the played server always answers: the gate alone keeps it shut.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any

import kstatus
from cluster.played import Operator, Studio, deployment, now, until
from stowplan_api.contract import READINESS_GATE


def gate(studio: Studio, pod: str) -> tuple[str, str]:
    found = studio.condition(f"pod/{pod}", READINESS_GATE)
    return found.get("status", ""), found.get("reason", "")


def becomes(studio: Studio, pod: str, status: str, reason: str) -> None:
    """The gate says so, and everybody who may be asked says what follows from it."""
    until(lambda: gate(studio, pod) == (status, reason), f"the gate is {status}: {reason}", seconds=30)
    studio.wait_condition("dd/tiny", "Ready", status, 30)
    studio.wait_condition(f"pod/{pod}", "Ready", status, 30)
    dd = studio.get("dd", "tiny")
    assert kstatus.judge(dd) == ("Current" if status == "True" else "InProgress")
    assert studio.kubectl("get", "dd", "tiny", "--no-headers").split()[2] == status
    validated, ready = dd["status"]["validatedReplicas"], dd["status"]["readyReplicas"]
    assert (validated, ready) == ((1, 1) if status == "True" else (0, 0))
    assert succeeds(studio, "wait", "--for=condition=Ready", "dd/tiny", "--timeout=0") is (status == "True")
    if status == "True":
        studio.kubectl("rollout", "status", "deployment/tiny", "--timeout=30s")
    else:
        assert not succeeds(studio, "rollout", "status", "deployment/tiny", "--timeout=1s")


def succeeds(studio: Studio, *arguments: str) -> bool:
    try:
        studio.kubectl(*arguments)
    except CalledProcessError:
        return False
    return True


def kill_server(studio: Studio, pod: str) -> None:
    """SIGKILL to the first process of the pod's server, from outside, and the kubelet has seen what came of it."""
    before = studio.get("pod", pod)["status"]["containerStatuses"][0]
    (first,) = _processes(before["containerID"].rpartition("/")[2])
    os.kill(first, signal.SIGKILL)
    more = f"{before['restartCount'] + 1}"
    studio.wait(f"pod/{pod}", ".status.containerStatuses[0].restartCount", more)
    studio.wait(f"pod/{pod}", ".status.containerStatuses[0].started", "true")


def _processes(container: str) -> list[int]:
    """The process that a container's others descend from: its parent is outside of the container."""
    inside = {int(entry.parent.name) for entry in Path("/proc").glob("[0-9]*/cgroup") if container in _text(entry)}
    parents = {pid: int(_text(Path(f"/proc/{pid}/stat")).rpartition(") ")[2].split()[1]) for pid in inside}
    return [pid for pid, parent in parents.items() if parent not in inside]


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def report(studio: Studio, pod: str) -> dict[str, Any]:
    status: dict[str, Any] = studio.get("rp", pod)["status"]
    return status


def repeat(studio: Studio, pod: str, status: dict[str, Any]) -> None:
    """A report that arrives, however old it is."""
    patch = json.dumps({"status": status})
    studio.kubectl("patch", "rp", pod, "--subresource=status", "--type=merge", f"--patch={patch}")


def test_one_pod_through_generations_kills_and_late_words(studio: Studio, operator: Operator) -> None:
    studio.apply(deployment())
    pod = studio.running_pod()
    becomes(studio, pod, "False", "AgentSilent")

    # Validated, but for another generation than the pod's own.
    studio.agent_says(pod, "True")
    becomes(studio, pod, "True", "PlacementValidated")
    proven = report(studio, pod)
    other = json.loads(json.dumps(proven))
    other["conditions"][0]["observedGeneration"] = 7
    repeat(studio, pod, other)
    becomes(studio, pod, "False", "OtherGeneration")

    repeat(studio, pod, proven)
    becomes(studio, pod, "True", "PlacementValidated")

    # Killed: what was validated is of a process that has ended, and saying it again does not help.
    kill_server(studio, pod)
    becomes(studio, pod, "False", "EarlierBoot")
    repeat(studio, pod, proven | {"phase": "Validate"})
    becomes(studio, pod, "False", "EarlierBoot")

    # The new boot measures, and is killed before its last word arrives.
    studio.agent_says(pod, "False", phase="Validate")
    becomes(studio, pod, "False", "NotValidated")
    lost = report(studio, pod)
    kill_server(studio, pod)
    lost["conditions"][0] |= {"status": "True", "lastTransitionTime": now()}
    repeat(studio, pod, lost)
    becomes(studio, pod, "False", "EarlierBoot")

    # The one after it validates, and takes it back.
    studio.agent_says(pod, "True")
    becomes(studio, pod, "True", "PlacementValidated")
    studio.agent_says(pod, "False", phase="RollBack")
    becomes(studio, pod, "False", "NotValidated")


def test_kills_while_no_operator_is_there(studio: Studio, operator: Operator) -> None:
    studio.apply(deployment())
    first = studio.running_pod()
    studio.agent_says(first, "True")
    becomes(studio, first, "True", "PlacementValidated")

    # Gates keep their value without an operator: what closes the pod then is its probe, which is played here.
    operator.kill()
    kill_server(studio, first)
    assert gate(studio, first) == ("True", "PlacementValidated")
    operator.start()
    becomes(studio, first, "False", "EarlierBoot")
    studio.agent_says(first, "True")
    becomes(studio, first, "True", "PlacementValidated")

    # A new pod is made without an operator, and stays closed; also once there is one, until its own agent validates.
    operator.kill()
    studio.kubectl("delete", "pod", first)
    until(lambda: [one for one in studio.pods() if one["metadata"]["name"] != first], "another pod is there")
    (second,) = (one["metadata"]["name"] for one in studio.pods())
    studio.wait_condition(f"pod/{second}", "ContainersReady", "True")
    assert studio.condition(f"pod/{second}", "Ready")["status"] == "False"
    assert gate(studio, second) == ("", "")
    operator.start()
    becomes(studio, second, "False", "AgentSilent")
    studio.agent_says(second, "True")
    becomes(studio, second, "True", "PlacementValidated")
