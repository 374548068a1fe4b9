"""The queue: a key once, never with two workers, none lost, failures later and later."""

from __future__ import annotations

import asyncio

from virtual_time import run

from stowplan_operator.observed import Key
from stowplan_operator.queue import FIRST_DELAY, LONGEST_DELAY, WorkQueue

A, B = Key("n", "a"), Key("n", "b")


def test_a_hundred_events_cost_one_reconcile() -> None:
    async def scenario() -> None:
        queue = WorkQueue()
        for _ in range(100):
            queue.add(A)
        queue.add(B)
        assert [await queue.get(), await queue.get()] == [A, B]
        assert len(queue) == 0

    asyncio.run(scenario())


def test_a_key_that_arrives_while_worked_on_comes_after_and_not_beside() -> None:
    async def scenario() -> None:
        queue = WorkQueue()
        queue.add(A)
        assert await queue.get() == A
        queue.add(A)
        second = asyncio.ensure_future(queue.get())
        await asyncio.sleep(0)
        assert not second.done()
        queue.done(A)
        assert await second == A

    asyncio.run(scenario())


def test_delays_double_up_to_a_limit_and_success_forgets_them() -> None:
    async def scenario() -> None:
        queue = WorkQueue()
        delays = [queue.failed(A) for _ in range(12)]
        assert delays[:3] == [FIRST_DELAY, 2 * FIRST_DELAY, 4 * FIRST_DELAY]
        assert delays[-1] == LONGEST_DELAY
        queue.succeeded(A)
        assert queue.failed(A) == FIRST_DELAY
        assert queue.failed(A, at_least=7) == 7

    asyncio.run(scenario())


def test_a_failed_key_comes_back_by_itself() -> None:
    async def scenario() -> None:
        queue = WorkQueue()
        queue.failed(A)
        assert await queue.get() == A

    run(scenario())


def test_a_key_that_the_server_asked_to_hold_waits_whatever_arrives() -> None:
    async def scenario() -> None:
        queue = WorkQueue()
        loop = asyncio.get_running_loop()
        queue.add(A)
        assert await queue.get() == A
        queue.add(A)
        queue.failed(A, at_least=7)
        queue.done(A)
        queue.add(A)
        assert len(queue) == 0
        assert await queue.get() == A
        assert loop.time() >= 7
        queue.done(A)
        queue.add(A)
        assert await queue.get() == A, "once"

    run(scenario())


def test_what_happened_comes_before_what_was_merely_listed() -> None:
    async def scenario() -> None:
        queue = WorkQueue()
        every = [Key("n", f"{number}") for number in range(100)]
        for key in every:
            queue.add(key, listed=True)
        queue.add(A)
        queue.add(every[50])
        queue.add(every[50], listed=True)
        assert [await queue.get(), await queue.get(), await queue.get()] == [A, every[50], every[0]]
        assert len(queue) == 98

    asyncio.run(scenario())


def test_what_was_listed_has_its_turn_however_much_happens() -> None:
    async def scenario() -> None:
        queue = WorkQueue()
        queue.add(B, listed=True)
        for turn in range(100):
            queue.add(A)
            key = await queue.get()
            queue.done(key)
            if key == B:
                assert turn < 20
                return
        raise AssertionError("it never had its turn")

    asyncio.run(scenario())


def test_a_key_that_is_worked_on_while_it_is_listed_is_worked_on_again() -> None:
    async def scenario() -> None:
        queue = WorkQueue()
        queue.add(A)
        assert await queue.get() == A
        queue.add(A, listed=True)
        queue.done(A)
        assert await queue.get() == A

    asyncio.run(scenario())


def test_later_is_no_sooner_and_an_event_comes_first() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        queue = WorkQueue()
        queue.later(A, 10.0)
        queue.later(A, 1.0)
        assert await queue.get() == A
        assert loop.time() == 10.0
        queue.done(A)
        queue.later(A, 10.0)
        queue.add(A)
        assert await queue.get() == A
        assert loop.time() == 10.0
        queue.done(A)
        retry = queue.failed(A)
        queue.later(A, 0.01)
        assert await queue.get() == A
        assert loop.time() == 10.0 + retry

    run(scenario())
