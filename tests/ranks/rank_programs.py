"""What a rank's process runs in these tests: one function each, by name. It imports torch only where it needs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from functools import partial
from typing import Any

from stowplan_agent import switch_signal
from stowplan_agent.ranks.agreement import Step
from stowplan_agent.ranks.agreement.delegate import AgreementEnded, Delegate
from stowplan_agent.ranks.board import Turn
from stowplan_agent.ranks.seat import Seat, take_seat

FOR_EVER = threading.Event()


def result(value: Any) -> None:
    print("result", json.dumps(value), flush=True)


def say_hello(seat: Seat) -> None:
    met = seat.circle.meet("hello", os.getpid())
    print(f"hello from {seat.rank}")
    print("no end of line", end="")
    print("a complaint", file=sys.stderr)
    result([one.value for one in met])
    assert take_seat() is None, "a program that a rank starts has no seat"


def die_by(seat: Seat, rank: str, how: str) -> None:
    """One rank ends in a stated way; the others wait in what would never end."""
    seat.doing("at move 3 of 7")
    seat.circle.meet("ready")
    if seat.rank == int(rank):
        if how.startswith("-"):
            os.kill(os.getpid(), -int(how))
        os._exit(int(how))
    FOR_EVER.wait()


def die_and_others_are_deaf(seat: Seat, rank: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    die_by(seat, rank, "3")


def print_and_be_killed(seat: Seat) -> None:
    """Rank 1, once what it printed has been passed on."""
    print("here", flush=True)
    seat.circle.meet("printed")
    if seat.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    FOR_EVER.wait()


def stay(seat: Seat) -> None:
    """Until asked to end, with a child that ignores being asked."""
    child = subprocess.Popen(
        [sys.executable, "-c", "import signal; signal.signal(15, signal.SIG_IGN); input()"], stdin=subprocess.PIPE
    )
    asked = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: asked.set())
    switch_signal.hear(lambda *_: print("switch", flush=True))
    result([os.getpid(), child.pid])
    while not asked.wait(0.05):
        pass


class SwitchedAtItsEnd:
    """The interpreter takes it down when its handlers are gone."""

    def __init__(self) -> None:
        self.throw = partial(os.kill, os.getpid(), signal.SIGUSR1)

    def __del__(self) -> None:
        self.throw()


def be_switched_early_and_late(seat: Seat) -> None:
    """Sent the switch before it hears, and once more when it hears no longer."""
    print("deaf", flush=True)
    while signal.SIGUSR1 not in signal.sigpending():
        FOR_EVER.wait(0.01)
    seat.circle.meet("sent")
    switch_signal.hear(lambda *_: print("switch", flush=True))
    globals()["LAST"] = SwitchedAtItsEnd()


def fall_behind(seat: Seat) -> None:
    """Rank 1 stands at a turn, alive, while rank 0 has come further."""
    seat.board.counter(seat.rank, Turn.FETCHED)[0] = 5 - seat.rank
    FOR_EVER.wait()


def agree(seat: Seat, failing_rank: str, failing_step: str, how: str) -> None:
    """A round in which a step of one rank fails, hangs, or kills its process."""
    placement = ["old"]

    def put(body: Any) -> Any:
        placement[0] = body
        return body

    steps: dict[Step, Any] = {
        Step.MEASURE: lambda _: seat.rank,
        Step.SOLVE: lambda _: "new",
        Step.APPLY: put,
        Step.VALIDATE: lambda _: None,
        Step.COMMIT: lambda _: None,
        Step.ROLL_BACK: put,
    }

    def fail(_: Any) -> Any:
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "hang":
            FOR_EVER.wait()
        raise MemoryError("no host memory for 4096 bytes of weights")

    if seat.rank == int(failing_rank):
        steps[Step(failing_step)] = fail
    try:
        served = Delegate(seat.rank, seat.control, "old", doing=seat.doing).agree(steps)
    except AgreementEnded as error:
        print(error, file=sys.stderr)
        sys.exit(70)
    result([served, placement[0]])


def main() -> None:
    seat = take_seat()
    assert seat is not None, "these programs are run by the supervisor"
    name, *arguments = sys.argv[1:]
    if name in globals():
        globals()[name](seat, *arguments)
    else:
        import card_programs
        import engine_programs

        result((card_programs.PROGRAMS | engine_programs.PROGRAMS)[name](seat, *arguments))


if __name__ == "__main__":
    main()
