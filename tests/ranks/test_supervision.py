"""Ranks as processes: one message when one is lost, no orphan, no zombie, no hang."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from crew import PROGRAMS, Tee, run_ranks

from stowplan_agent.ranks.agreement import Deadlines, Step


def alive(pid: int) -> bool:
    """Whether a process is there and is no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def test_ranks_meet_and_their_lines_are_told_apart() -> None:
    outcome = run_ranks("say_hello", 3)
    assert (outcome.code, outcome.cause) == (0, None)
    for rank in range(3):
        assert f"[rank {rank}] hello from {rank}" in outcome.lines
        assert f"[rank {rank}] a complaint" in outcome.errors
    pids = {tuple(outcome_of) for outcome_of in (_result(outcome.lines, rank) for rank in range(3))}
    assert len(pids) == 1
    assert not any(alive(pid) for pid in pids.pop())


def _result(lines: list[str], rank: int) -> list[int]:
    (line,) = [line for line in lines if line.startswith(f"[rank {rank}] no end of lineresult ")]
    return [int(pid) for pid in line.rpartition("[")[2].rstrip("]").split(",")]


@pytest.mark.parametrize(
    ("rank", "how", "code", "sentence"),
    [
        (1, "3", 3, "rank 1 ended with exit code 3"),
        (0, "-9", 137, "rank 0 was ended by SIGKILL"),
        (1, "-11", 139, "rank 1 was ended by SIGSEGV"),
    ],
)
def test_a_rank_that_dies_ends_all_with_one_message(rank: int, how: str, code: int, sentence: str) -> None:
    outcome = run_ranks("die_by", 2, str(rank), how)
    assert outcome.code == code
    assert outcome.errors == [f"{sentence} while it was at move 3 of 7; and the other ranks are ended too"]


def test_ranks_that_do_not_hear_are_killed() -> None:
    outcome = run_ranks("die_and_others_are_deaf", 2, "1")
    assert outcome.code == 3
    assert outcome.errors == [
        "rank 1 ended with exit code 3 while it was at move 3 of 7; and the other ranks are ended too"
    ]


def test_a_kill_for_want_of_memory_is_told_as_one(tmp_path: Path) -> None:
    events = tmp_path / "sys/fs/cgroup/memory.events"
    events.parent.mkdir(parents=True)
    events.write_text("low 0\noom 1\noom_kill 4\n")

    class Counting(Tee):
        def write(self, data: object) -> int:
            events.write_text("low 0\noom 2\noom_kill 5\n")
            return super().write(data)

    outcome = run_ranks("print_and_be_killed", 2, root=tmp_path, output=Counting(b"", 1))
    assert outcome.cause is not None
    assert outcome.cause.startswith("rank 1 was killed by the kernel because the container has no host memory left")


def test_a_request_to_stop_reaches_all_and_what_they_have_started() -> None:
    output = Tee(b"result", 2)

    def ask() -> None:
        assert output.seen.wait(60)
        os.kill(os.getpid(), signal.SIGUSR1)
        assert output.awaited(b"switch", 2).wait(60)  # two signals at once may come in any order
        os.kill(os.getpid(), signal.SIGTERM)

    asking = threading.Thread(target=ask)
    asking.start()
    outcome = run_ranks("stay", 2, output=output)
    asking.join()
    assert (outcome.code, outcome.cause) == (0, None)
    assert {f"[rank {rank}] switch" for rank in range(2)} <= set(outcome.lines)
    pids = [pid for rank in range(2) for pid in outcome.result(rank)]
    assert len(pids) == 4
    assert not any(alive(pid) for pid in pids)


def test_the_kill_switch_ends_no_rank_at_any_moment_of_its_life() -> None:
    output = Tee(b"deaf", 2)

    def throw() -> None:
        assert output.seen.wait(60)
        os.kill(os.getpid(), signal.SIGUSR1)

    throwing = threading.Thread(target=throw)
    throwing.start()
    outcome = run_ranks("be_switched_early_and_late", 2, output=output)
    throwing.join()
    assert (outcome.code, outcome.cause, outcome.errors) == (0, None, [])
    assert sorted(outcome.lines) == [f"[rank {rank}] {word}" for rank in range(2) for word in ("deaf", "switch")]


def test_ranks_end_when_the_supervisor_is_killed() -> None:
    text = f"""
import sys
from stowplan_agent.ranks.supervision import Supervisor
Supervisor([[sys.executable, {str(PROGRAMS)!r}, "stay"]] * 2).run()
"""
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stdout is not None
        lines = [supervisor.stdout.readline() for _ in range(2)]
        ranks = [int(line.partition("[")[2].partition("result [")[2].partition(",")[0]) for line in lines]
        pidfds = [os.pidfd_open(pid) for pid in ranks]
        supervisor.kill()
    poller = select.poll()
    for pidfd in pidfds:
        poller.register(pidfd)
    waiting = set(pidfds)
    while waiting:
        ready = poller.poll(30_000)
        assert ready, "a rank outlives its supervisor"
        for pidfd, _ in ready:
            poller.unregister(pidfd)
            os.close(pidfd)
            waiting.remove(pidfd)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("step", [Step.MEASURE, Step.APPLY, Step.VALIDATE])
def test_a_rank_that_fails_has_all_go_back(rank: int, step: Step) -> None:
    outcome = run_ranks("agree", 2, str(rank), step, "raise")
    assert outcome.code == 0
    assert [outcome.result(one) for one in range(2)] == [["old", "old"]] * 2


@pytest.mark.parametrize("step", [Step.APPLY, Step.COMMIT])
def test_a_rank_that_dies_in_a_round_ends_all(step: Step) -> None:
    outcome = run_ranks("agree", 2, "1", step, "kill")
    assert outcome.code == 137
    assert outcome.errors[-1] == (
        f"rank 1 was ended by SIGKILL while it was at {step} of round 1; and the other ranks are ended too"
    )


def test_a_rank_that_hangs_in_a_round_ends_all_when_going_back_takes_too_long() -> None:
    outcome = run_ranks("agree", 2, "1", Step.APPLY, "hang", deadlines=Deadlines(apply=0.2, roll_back=0.2))
    assert outcome.code == 70
    late = "(rank 0 and )?rank 1 did not"  # on a busy machine rank 0 may be late as well
    assert re.fullmatch(f"{late} roll back in time; before that: {late} apply in time", outcome.errors[-1])


def test_all_go_on_together() -> None:
    outcome = run_ranks("agree", 2, "9", Step.APPLY, "raise")
    assert outcome.code == 0
    assert [outcome.result(one) for one in range(2)] == [["new", "new"]] * 2


def test_a_rank_that_stands_still_holds_the_others_up_for_so_long_and_is_named() -> None:
    outcome = run_ranks("fall_behind", 2, patience=0.5)
    assert outcome.code == 70
    assert re.fullmatch(
        "rank 1 has stood at turn 4 of the exchange for [0-9]+ s while another one waits at 5", outcome.errors[-1]
    )
