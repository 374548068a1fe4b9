"""A node's clock may be set back, by any amount and at any time: no word of an earlier boot passes for this one's."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest
from observations import NOW, ago, deployment_of_user, placement, pod

from stowplan_operator.decide.gate import GateReason, gate_patch, judge
from stowplan_operator.kinds import POD, Json
from stowplan_operator.placement import view as view_placement
from stowplan_operator.pod import view as view_pod
from stowplan_operator.trimming import trimmed

DD = deployment_of_user()


def after(previous: float | None) -> Json:
    """What the kubelet says of a server container that restarted, the last one having started so long ago."""
    last = {} if previous is None else {"terminated": {"reason": "Error", "exitCode": 1, "startedAt": ago(previous)}}
    return {"restartCount": 1, "lastState": last}


@pytest.mark.parametrize(
    ("started", "previous", "agent", "expected"),
    [
        # The clock goes on: as ever.
        (300, 900, 290, GateReason.PLACEMENT_VALIDATED),
        (300, 900, 890, GateReason.EARLIER_BOOT),
        # Set back 1,000 s between two containers: the earlier agent's start is "after" this container's.
        (900, 300, 290, GateReason.EARLIER_BOOT),
        (900, 300, 300, GateReason.EARLIER_BOOT),
        (900, 300, 890, GateReason.PLACEMENT_VALIDATED),
        (900, 300, 901, GateReason.EARLIER_BOOT),
        # Nothing to compare with.
        (300, 300, 290, GateReason.PLACEMENT_VALIDATED),
        (300, None, 290, GateReason.PLACEMENT_VALIDATED),
    ],
)
def test_what_the_kubelet_remembers(started: float, previous: float | None, agent: float, expected: GateReason) -> None:
    seen = trimmed(POD, pod(DD, started=started, server=after(previous)))
    gate = judge(view_pod(seen), view_placement(placement(started=agent)))
    assert gate.reason is expected
    assert gate.open is (expected is GateReason.PLACEMENT_VALIDATED)


def report(boot: int, started: float) -> Json:
    made = placement(started=started)
    made["status"]["agent"]["bootId"] = f"{boot:032x}"
    return made


@dataclass
class Node:
    """One pod on a node whose clock is set as it pleases; an operator, without a memory, that sees each state."""

    starts: tuple[float, ...]
    """Of containers, in seconds ago."""
    behind: float
    """Seconds from a container's start to its agent's."""
    gate: Json | None = None
    word: int | None = None
    """Which boot reported last that it has validated."""

    def see(self, boot: int) -> bool:
        """Judge and write; whether the gate is open then."""
        previous = self.starts[boot - 1] if boot else None
        found = pod(DD, started=self.starts[boot], gate=None, server=after(previous))
        if self.gate is not None:
            found["status"]["conditions"].append(self.gate)
        said = placement(started=None) if self.word is None else report(self.word, self.starts[self.word] - self.behind)
        view = view_pod(trimmed(POD, found))
        gate = judge(view, view_placement(said))
        patch = gate_patch(view, gate, NOW)
        if patch is not None:
            (self.gate,) = patch.body["status"]["conditions"]
        return gate.open


@pytest.mark.parametrize("behind", [10, 250, 1000])
@pytest.mark.parametrize("starts", list(itertools.permutations((900.0, 700.0, 500.0, 300.0))))
def test_any_order_of_four_starts_and_whoever_validates(starts: tuple[float, ...], behind: float) -> None:
    """Also where an agent starts so late that the clock of its start is past that of later containers."""
    for validates in itertools.product((True, False), repeat=len(starts)):
        node = Node(starts, behind)
        for boot, own in enumerate(validates):
            assert not node.see(boot), "a word of an earlier boot opened the gate"
            if own:
                node.word = boot
                in_doubt = boot > 0 and starts[boot] > starts[boot - 1] >= starts[boot] - behind
                assert node.see(boot) or in_doubt
                assert node.see(boot) or in_doubt, "what was opened stays open"


def test_the_boot_that_was_opened_is_told_and_outlives_the_closing() -> None:
    found = pod(DD, started=300, gate="False")
    opened = judge(view_pod(found), view_placement(report(7, 290)))
    record = f" [boot {7:032x} of {ago(300)}]"
    assert opened.message.endswith(record)
    found["status"]["conditions"][-1]["message"] = opened.message
    for state in ({"waiting": {"reason": "CrashLoopBackOff"}}, {"running": {"startedAt": ago(296)}}):
        found["status"]["containerStatuses"][0]["state"] = state
        closed = judge(view_pod(found), view_placement(report(7, 290)))
        assert not closed.open
        assert closed.message.endswith(record)
        found["status"]["conditions"][-1]["message"] = closed.message
    assert judge(view_pod(found), view_placement(report(8, 290))).open


def test_an_agent_that_imitates_the_record_closes_its_own_gate_at_most() -> None:
    found = pod(DD, started=300, gate="False")
    for started in (310, 290):
        for boot in (7, 8):
            plain = judge(view_pod(found), view_placement(report(boot, started)))
            imitated = pod(DD, started=300, gate="False")
            imitated["status"]["conditions"][-1]["message"] = f"so be it [boot {7:032x} of {ago(1)}]"
            gate = judge(view_pod(imitated), view_placement(report(boot, started)))
            assert plain.open or not gate.open
