"""Points: enumerated by running, named in one language, and every operation of the interface is one."""

from __future__ import annotations

import ast
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

import stowplan_agent
from stowplan_agent.accelerators import Accelerator
from stowplan_agent.accelerators.announced import EVENT, NEVER_FAIL, announce, operations
from stowplan_agent.accelerators.emulated import EmulatedAccelerator, EmulatedCard
from stowplan_agent.transaction import Faults, Point, Points
from stowplan_agent.transaction.points import KINDS


@pytest.mark.parametrize(
    "text",
    ["apply:allocate.3", "validate:copy.10=slow", "commit:unpin.1=kill", "rollback:pin.2+", "load:read.7+=slow",
     "validate:free.1=term"],
)  # fmt: skip
def test_a_point_is_written_as_it_is_read(text: str) -> None:
    assert str(Point.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    ["apply:allocate", "apply:allocate.0", "apply:launch.1", "Apply:copy.1", "apply:copy.1=loud", ":copy.1",
     "validate:free.1", "apply:copy.1++", "apply.1", "aply:copy.1", "warm_again:copy.1"],
)  # fmt: skip
def test_what_is_no_point_is_not_read(text: str) -> None:
    assert Point.parse(text) is None


def test_every_operation_of_the_interface_is_announced() -> None:
    """One that is added to the interface is a point without anybody's doing."""
    card = EmulatedAccelerator(EmulatedCard(2 << 20))
    announce(card)
    assert operations() == {name for name in Accelerator.__abstractmethods__ if name != "staging_bytes"}
    assert all(getattr(card, name).__name__ in operations() for name in operations())
    wrapped = card.allocate
    announce(card)
    assert card.allocate is wrapped  # not twice
    card.close()


def test_a_run_counts_the_points_of_its_stages_and_of_nothing_else() -> None:
    card = EmulatedAccelerator(EmulatedCard(2 << 20))
    announce(card)
    points = Points()
    card.free(card.allocate(16))
    with points.within("apply"):
        buffers = [card.allocate(16), card.allocate(16)]
        with points.within("commit"):
            card.free(buffers[0])
        card.free(buffers[1])
    card.allocate(16)
    assert points.seen == {("apply", "allocate"): 2, ("commit", "free"): 1, ("apply", "free"): 1}
    assert points.all() == ["apply:allocate.1", "apply:allocate.2"]  # nothing fails to be given back
    card.close()


def test_each_kind_fails_as_the_real_thing_does() -> None:
    short, refused, broken = torch.OutOfMemoryError, OSError, RuntimeError
    errors = {"allocate": short, "activation": short, "read": refused, "arena": refused, "report": refused}
    errors |= {"copy": broken, "pin": broken, "hook": broken}
    for kind, error in errors.items():
        points = Points((Point("load", kind, 2),))
        with points.within("load"):
            sys.audit(EVENT + kind)
            with pytest.raises(error, match=rf"fault load:{kind}\.2 was injected by STOWPLAN_FAULTS"):
                sys.audit(EVENT + kind)
            sys.audit(EVENT + kind)


def test_from_a_point_onwards_everything_fails() -> None:
    points = Points((Point("apply", "copy", 2, onwards=True),))
    with points.within("apply"):
        sys.audit(EVENT + "copy")
        for _ in range(3):
            with pytest.raises(RuntimeError, match="injected"):
                sys.audit(EVENT + "copy")


def test_slow_operations_are_held_up_and_then_done() -> None:
    waits: list[float] = []
    points = Points((Point("apply", "copy", 1, effect="slow"),), sleep=waits.append)
    with points.within("apply"):
        sys.audit(EVENT + "copy")
    assert len(waits) == 1 and waits[0] > 0


def test_a_process_is_killed_or_asked_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda process, number: sent.append((process, number)))
    points = Points((Point("apply", "copy", 1, effect="kill"), Point("apply", "copy", 2, effect="term")))
    with points.within("apply"):
        sys.audit(EVENT + "copy")
        sys.audit(EVENT + "copy")
    assert sent == [(os.getpid(), signal.SIGKILL), (os.getpid(), signal.SIGTERM)]


def test_other_threads_are_heard_as_well() -> None:
    points = Points()
    with points.within("load"):
        threads = [threading.Thread(target=sys.audit, args=(EVENT + "read",)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert points.seen["load", "read"] == 8


def test_without_points_nothing_is_announced() -> None:
    card = EmulatedAccelerator(EmulatedCard(2 << 20))
    faults = Faults("validate.output")
    faults.watch(card)
    assert not operations() & vars(card).keys()
    Faults("apply:copy.1").watch(card)
    assert operations() <= vars(card).keys()
    card.close()


WATCHED = {"mmap": "arena", "preadv": "read", "register_forward_pre_hook": "hook", "register_forward_hook": "hook"}
"""Calls by which the engine takes memory of the host, reads files and installs hooks, and what announces them."""


def test_what_the_engine_takes_reads_and_installs_is_announced_where_it_happens() -> None:
    """A new call of these anywhere in the engine fails here until it is announced."""
    found = set()
    for path in (Path(stowplan_agent.__file__).parent / "weights").rglob("*.py"):
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef):
                calls = list(calls_of(function))
                for kind in {WATCHED[name] for name, _ in calls if name in WATCHED}:
                    assert ("audit", f"{EVENT}{kind}") in calls, f"{path.name}: {function.name} does not say {kind}"
                    found.add(kind)
    assert found == set(WATCHED.values()) <= KINDS


def calls_of(function: ast.FunctionDef) -> Any:
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            first = node.args[0] if node.args else None
            yield node.func.attr, first.value if isinstance(first, ast.Constant) else None


def test_every_announcement_is_a_kind() -> None:
    said = set()
    for path in Path(stowplan_agent.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "audit":
                event = node.args[0]
                if isinstance(event, ast.Constant) and str(event.value).startswith(EVENT):
                    said.add(str(event.value)[len(EVENT) :])
    assert said == KINDS - operations()
    assert operations() >= NEVER_FAIL
