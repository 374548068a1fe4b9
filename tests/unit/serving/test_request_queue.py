"""One at a time, in order, bounded; whatever one request does, the next one runs."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from stowplan_agent.serving.attempt import is_out_of_memory
from stowplan_agent.serving.queue import Closed, Full, RequestQueue
from stowplan_agent.serving.requests import Failed, GenerationRequest, GenerationResult, Refused

DEADLINE = 20.0


def request(prompt: str = "a", kind: Any = "image", steps: int = 4) -> GenerationRequest:
    return GenerationRequest(kind, prompt, None, 32, 32, 1 if kind == "image" else 5, steps, 1, None)


def no_limit(request: GenerationRequest) -> None:
    pass


@pytest.fixture
def queue(pipeline: Any) -> Iterator[RequestQueue]:
    queue = RequestQueue(limit=2)
    yield queue
    pipeline.release()
    assert queue.stop(DEADLINE)


def test_nothing_enters_before_a_pipeline_is_installed(queue: RequestQueue) -> None:
    with pytest.raises(Closed):
        queue.submit(request())
    assert queue.waiting == 0


def test_requests_run_one_at_a_time_and_in_order(queue: RequestQueue, pipeline: Any) -> None:
    order: list[str] = []
    inside = threading.Lock()

    def run(wanted: GenerationRequest, cancelled: Callable[[], bool]) -> GenerationResult:
        assert inside.acquire(blocking=False), "two requests ran at once"
        order.append(wanted.prompt)
        result = pipeline.run(wanted, cancelled)
        inside.release()
        return result  # type: ignore[no-any-return]

    pipeline.hold()
    queue.open(run, no_limit)
    jobs = [queue.submit(request("first"))]
    assert pipeline.begun("first").wait(DEADLINE)
    jobs += [queue.submit(request(name)) for name in ("second", "third")]
    assert [job.status for job in jobs] == ["in_progress", "queued", "queued"]
    pipeline.release()
    assert all(job.wait(DEADLINE) for job in jobs)
    assert [job.status for job in jobs] == ["completed"] * 3
    assert order == ["first", "second", "third"]


def test_a_full_queue_says_how_full(queue: RequestQueue, pipeline: Any) -> None:
    pipeline.hold()
    queue.open(pipeline.run, no_limit)
    queue.submit(request("runs"))
    assert pipeline.begun("runs").wait(DEADLINE)
    waiting = [queue.submit(request()) for _ in range(2)]
    with pytest.raises(Full, match="2 requests are waiting and the queue holds 2"):
        queue.submit(request())
    waiting[0].cancel()
    assert queue.waiting == 1
    queue.submit(request())


def test_refused_requests_are_never_queued(queue: RequestQueue, pipeline: Any) -> None:
    def admit(wanted: GenerationRequest) -> None:
        raise Refused("needs 31 GiB, the ceiling is 30 GiB")

    queue.open(pipeline.run, admit)
    with pytest.raises(Refused, match="30 GiB"):
        queue.submit(request())
    assert queue.waiting == 0 and not pipeline.steps_run


def test_cancelling_a_waiting_request_ends_it_at_once_and_it_never_runs(queue: RequestQueue, pipeline: Any) -> None:
    pipeline.hold()
    queue.open(pipeline.run, no_limit)
    running = queue.submit(request("runs"))
    assert pipeline.begun("runs").wait(DEADLINE)
    waiting = queue.submit(request("waits"))
    waiting.cancel()
    assert waiting.done and waiting.error is not None and waiting.error.code == "cancelled"
    pipeline.release()
    assert running.wait(DEADLINE) and running.status == "completed"
    assert "waits" not in pipeline.steps_run


def test_cancelling_a_running_request_stops_it_within_one_step(queue: RequestQueue, pipeline: Any) -> None:
    at_step_two, go_on = threading.Event(), threading.Event()
    steps: list[int] = []

    def run(wanted: GenerationRequest, cancelled: Callable[[], bool]) -> GenerationResult:
        for step in range(wanted.steps):
            steps.append(step)
            if step == 1 and wanted.prompt == "stops":
                at_step_two.set()
                assert go_on.wait(DEADLINE)
            if cancelled():
                break  # diffusers' own interrupt also returns early, with a result that nobody wants
        return pipeline.run(wanted, lambda: False)  # type: ignore[no-any-return]

    queue.open(run, no_limit, pipeline.recover)
    first, second = queue.submit(request("stops", steps=20)), queue.submit(request("next"))
    assert at_step_two.wait(DEADLINE)
    assert first.progress == 5
    first.cancel()
    go_on.set()
    assert first.wait(DEADLINE) and second.wait(DEADLINE)
    assert first.error is not None and first.error.code == "cancelled" and first.content is None
    assert steps[:2] == [0, 1] and len(steps) == 2 + 4
    assert second.status == "completed" and second.progress == 100
    assert pipeline.recovered == 1


def test_cancelling_what_has_ended_changes_nothing(queue: RequestQueue, pipeline: Any) -> None:
    queue.open(pipeline.run, no_limit)
    job = queue.submit(request())
    assert job.wait(DEADLINE)
    job.cancel()
    assert job.status == "completed" and job.error is None and job.content is not None


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (torch.OutOfMemoryError("tried to allocate 2 GiB"), "out_of_memory", "2 GiB"),
        (MemoryError(), "out_of_memory", "ran out of memory"),
        (Failed("the scheduler gave up"), "failed", "the scheduler gave up"),
        (ZeroDivisionError("by zero"), "failed", "ZeroDivisionError: by zero"),
        (SystemExit(3), "failed", "SystemExit"),
    ],
)
def test_a_failure_fails_one_request_and_the_next_one_works(
    queue: RequestQueue, pipeline: Any, error: BaseException, code: str, says: str
) -> None:
    pipeline.errors["bad"] = error
    queue.open(pipeline.run, no_limit, pipeline.recover)
    bad, again = queue.submit(request("bad")), queue.submit(request("bad"))
    assert bad.wait(DEADLINE) and again.wait(DEADLINE)
    assert bad.error is not None and bad.error.code == code and says in bad.error.message
    assert pipeline.recovered == 1
    assert again.status == "completed"


def test_memory_of_a_failed_request_is_free_before_its_client_hears_of_it(queue: RequestQueue) -> None:
    class Tensor:
        pass

    alive: list[weakref.ref[Tensor]] = []
    at_recovery: list[object] = []

    def run(wanted: GenerationRequest, cancelled: Callable[[], bool]) -> GenerationResult:
        tensor = Tensor()
        alive.append(weakref.ref(tensor))
        cycle: list[object] = [tensor]
        cycle.append(cycle)
        try:
            raise torch.OutOfMemoryError("no")
        except torch.OutOfMemoryError as error:
            cycle.append(error)  # the error holds the frame, the frame holds the tensor
            raise

    queue.open(run, no_limit, lambda: at_recovery.append(alive[0]()))
    job = queue.submit(request())
    assert job.wait(DEADLINE)
    assert at_recovery == [None]


def test_a_result_lives_only_as_long_as_somebody_holds_its_job(queue: RequestQueue) -> None:
    results: list[weakref.ref[GenerationResult]] = []

    def run(wanted: GenerationRequest, cancelled: Callable[[], bool]) -> GenerationResult:
        result = GenerationResult(np.zeros((1, 32, 32, 3), np.uint8), 0.1, 16)
        results.append(weakref.ref(result))
        return result

    queue.open(run, no_limit)
    job = queue.submit(request())
    assert job.wait(DEADLINE)
    assert job.status == "completed"
    pause = threading.Event()
    for _ in range(int(DEADLINE / 0.02)):
        if results[0]() is None:
            return
        pause.wait(0.02)  # the worker lets go a moment after it told us
    raise AssertionError("the queue keeps a result that nobody can ask for")


def test_a_failing_recovery_does_not_stop_the_queue(queue: RequestQueue, pipeline: Any) -> None:
    def recover() -> None:
        raise RuntimeError("still full")

    pipeline.errors["bad"] = Failed("no")
    queue.open(pipeline.run, no_limit, recover)
    bad, good = queue.submit(request("bad")), queue.submit(request("good"))
    assert bad.wait(DEADLINE) and good.wait(DEADLINE)
    assert good.status == "completed"


def test_a_video_that_cannot_be_encoded_fails_alone(queue: RequestQueue, pipeline: Any) -> None:
    def run(wanted: GenerationRequest, cancelled: Callable[[], bool]) -> GenerationResult:
        if wanted.prompt == "odd":
            return GenerationResult(np.zeros((1, 31, 31, 3), np.uint8), 0.1, 16)
        return pipeline.run(wanted, cancelled)  # type: ignore[no-any-return]

    queue.open(run, no_limit)
    odd, even = queue.submit(request("odd", "video")), queue.submit(request("even", "video"))
    assert odd.wait(DEADLINE) and even.wait(DEADLINE)
    assert odd.error is not None and "must be even" in odd.error.message
    assert even.status == "completed" and even.content is not None and even.content.file(0).exists()


def test_stopping_cancels_what_waits_and_what_runs(pipeline: Any) -> None:
    queue = RequestQueue(limit=2)
    pipeline.hold()
    queue.open(pipeline.run, no_limit)
    running = queue.submit(request("runs"))
    assert pipeline.begun("runs").wait(DEADLINE)
    waiting = queue.submit(request("waits"))
    assert not queue.stop(timeout=0)
    assert waiting.done
    pipeline.release()
    assert queue.stop(DEADLINE)
    assert running.done and running.error is not None and running.error.code == "stopping"
    with pytest.raises(Closed):
        queue.submit(request())
    with pytest.raises(Closed):
        queue.open(pipeline.run, no_limit)


def test_out_of_memory_is_known_by_its_name_through_inheritance() -> None:
    class MyOutOfMemory(torch.OutOfMemoryError):
        pass

    assert is_out_of_memory(MyOutOfMemory("x"))
    assert not is_out_of_memory(RuntimeError("CUDA out of luck"))
