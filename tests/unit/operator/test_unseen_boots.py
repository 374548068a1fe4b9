"""Boots that no operator saw, on a node whose clock was set as it pleases: no word of them passes for this one's.

Every order of the starts of three containers; each of the first two ends before its agent can count, before it can say
anything, before it validates, or after that; and an operator sees each of them once, later, both times or never.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import pytest
from observations import NOW, ago, condition, deployment_of_user, placement, pod

from stowplan_operator.decide.gate import Gate, GateReason, gate_patch, judge
from stowplan_operator.kinds import POD, Json
from stowplan_operator.placement import view as view_placement
from stowplan_operator.pod import view as view_pod
from stowplan_operator.trimming import trimmed

UNCOUNTED, SILENT, REPORTS, VALIDATES = range(4)
"""How far a boot comes."""
STARTS = list(itertools.permutations((900.0, 600.0, 300.0)))
EMPTY = placement(started=None, validated=None)
SEEN = trimmed(POD, pod(deployment_of_user(), started=300, gate=None))


def report(boot: int, started: float, earlier: int | None, validated: str) -> Json:
    return EMPTY | {
        "status": {
            "phase": "Ready" if validated == "True" else "Load",
            "agent": {"bootId": f"{boot:032x}", "startedAt": ago(started), "version": "0"}
            | ({} if earlier is None else {"earlierBoots": earlier}),
            "conditions": [condition("Validated", validated, "Reason")],
        }
    }


@dataclass
class Node:
    """A pod whose containers start at these times, in seconds ago by a clock that is set back and forth."""

    starts: tuple[float, ...]
    behind: float
    """Seconds from a container's start to its agent's."""
    boot: int = 0
    counted: int = 0
    word: Json = field(default_factory=lambda: EMPTY)
    gate: list[Json] = field(default_factory=list)

    def says(self, validated: str) -> None:
        self.word = report(self.boot, self.starts[self.boot] - self.behind, self.counted, validated)

    def run(self, comes: int, seen: tuple[bool, bool]) -> None:
        """One boot from its container's start to its end, seen at its start, at its end, both or not."""
        if seen[0]:
            assert not self.see().open, "a word of an earlier boot opened the gate"
        if comes >= REPORTS:
            self.says("False")
        if comes == VALIDATES:
            self.says("True")
        if seen[1]:
            assert not self.see().open or comes == VALIDATES, "no boot has validated"
        self.counted += comes > UNCOUNTED
        self.boot += 1

    def see(self) -> Gate:
        """An operator without a memory judges what is there, and writes."""
        before = {"terminated": {"reason": "Error", "startedAt": ago(self.starts[self.boot - 1])}} if self.boot else {}
        state = {"running": {"startedAt": ago(self.starts[self.boot])}}
        server = {"name": "server", "restartCount": self.boot, "state": state, "lastState": before}
        found = view_pod(SEEN | {"status": {"conditions": self.gate, "containerStatuses": [server]}})
        gate = judge(found, view_placement(self.word))
        patch = gate_patch(found, gate, NOW)
        if patch is not None:
            self.gate = patch.body["status"]["conditions"]
        return gate


ENDS = list(itertools.product(range(4), itertools.product((True, False), repeat=2)))


@pytest.mark.parametrize("behind", [10, 350])
@pytest.mark.parametrize("starts", STARTS)
def test_whatever_the_first_two_did_and_whoever_saw_it(starts: tuple[float, ...], behind: float) -> None:
    for first, second in itertools.product(ENDS, repeat=2):
        node = Node(starts, behind)
        node.run(*first)
        node.run(*second)
        all_counted = node.counted == node.boot
        assert not node.see().open, (first, second)
        node.says("False")
        assert not node.see().open, (first, second)
        node.says("True")
        assert node.see().open, (first, second, "a boot that is seen to report and to validate is believed")

        absent = Node(starts, behind, node.boot, node.counted)
        absent.says("True")
        assert absent.see().open is all_counted, "validated while no operator ran: the count says whose it is"


def test_what_was_doubted_is_believed_once_it_says_more() -> None:
    node = Node((900.0, 300.0), 10, boot=1, counted=0)
    node.says("False")
    doubted = node.see()
    assert doubted.reason is GateReason.EARLIER_BOOT
    assert "(boots before it: 0, restarts of the container: 1)" in doubted.message
    assert node.see() == doubted, "nothing changed means nothing written"
    node.says("True")
    assert node.see().reason is GateReason.PLACEMENT_VALIDATED
    assert node.see().open, "what was opened stays open"
    node.boot, node.starts = 2, (900.0, 300.0, 900.0)
    assert not node.see().open, "its boot ended with its container"
    assert not node.see().open


def test_an_agent_that_cannot_count_is_judged_by_times() -> None:
    node = Node((900.0, 600.0, 300.0), 10, boot=2)
    node.word = report(2, 290.0, None, "True")
    assert node.see().open


def test_a_doubt_that_came_before_the_kubelets_word_of_its_container_is_no_end() -> None:
    node = Node((900.0, 600.0, 300.0), 10, boot=1)
    node.word = report(2, 290.0, 0, "False")
    assert not node.see().open, "the container before it is the newest that is known"
    node.boot = 2
    assert not node.see().open
    node.word = report(2, 290.0, 0, "True")
    assert node.see().open
