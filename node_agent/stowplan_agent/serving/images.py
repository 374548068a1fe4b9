"""The routes of images: made while the client waits, step by step if it likes; kept where it asks for a URL.

No handler blocks the event loop: waiting for a job is an asyncio event set from the worker's thread. Liveness therefore
answers whatever the device does. A client that hangs up ends its request within one step.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from io import BytesIO
from typing import Any, BinaryIO

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from starlette.concurrency import iterate_in_threadpool, run_in_threadpool

from stowplan_agent.serving.answers import TAKING, Images, answer, events_of, file_of
from stowplan_agent.serving.bodies import image_request
from stowplan_agent.serving.contents import opened
from stowplan_agent.serving.desk import Desk, Taken, must_be, not_here
from stowplan_agent.serving.downloads import CHUNK, Pieces, file_answer
from stowplan_agent.serving.errors import ApiError, of_job
from stowplan_agent.serving.events import STILL_HERE, EventStream, error_event, event
from stowplan_agent.serving.fields import ImageBody
from stowplan_agent.serving.idempotency import Key
from stowplan_agent.serving.inline import answer_with, event_with, length_of, written
from stowplan_agent.serving.jobs import CANCELLED, Job
from stowplan_agent.serving.payload import accepts, read_body
from stowplan_agent.serving.ranges import Range
from stowplan_agent.serving.waiting import Gone, changes, until_done


def image_routes(desk: Desk) -> APIRouter:
    """POST /v1/images/generations, and where URLs lead."""
    router = APIRouter(tags=["images"])

    @router.post(
        "/v1/images/generations",
        openapi_extra=accepts(ImageBody),
        responses=answer(Images, 408, *TAKING, content=events_of("with stream: the steps, then each image")),
        response_model=None,
    )
    async def generate(request: Request, idempotency_key: Key = None) -> Response:
        """Make images and answer when they are there; the client's hanging up cancels the work."""
        defaults = await desk.enter(idempotency_key)
        body = await read_body(ImageBody, request)
        wanted = image_request(body, defaults, desk.seeds)
        by_url = body.response_format == "url"
        while True:
            taken = await desk.take(wanted, body, idempotency_key, kept=by_url, followed=True)
            try:
                if body.stream:
                    return await _streamed(desk, taken, request)
                return await _waited_for(desk, taken, request, by_url=by_url)
            except FileNotFoundError:  # of an earlier request with this key, just now: they are made again
                continue

    @router.get(
        "/v1/images/{image_id}/{index}/content",
        name="image_content",
        responses=file_of("image/png", "The image.", 400, 404),
        response_class=Response,
    )
    async def content(image_id: str, index: int, request: Request, byte_range: Range = None) -> Response:
        """One image that was asked for as a URL."""
        job = must_be(desk.shelf.get(image_id), "image", image_id)
        made = 0 if job.content is None else len(job.content.parts)
        if job.content is None or not 0 <= index < made:
            message = f"{job.id} has {made} images, counted from 0, and none numbered {index}"
            raise ApiError(404, message, code="image_not_found", param="index")
        try:
            path = job.content.file(index)
            return await file_answer(path, "image/png", request.headers, lambda: desk.shelf.collect_part(job, index))
        except FileNotFoundError:
            raise not_here("image", image_id) from None

    return router


async def _waited_for(desk: Desk, taken: Taken, request: Request, *, by_url: bool) -> Response:
    """The answer when the job has ended. Raises FileNotFoundError where its images have made room since."""
    job = taken.job
    try:
        await until_done(job, request.is_disconnected)
        made = _made(job)
        if by_url:  # it is collected where the URLs lead
            return JSONResponse(made | {"data": _urls(job, request)}, headers=taken.headers)
        images = await _opened(job)
    finally:
        job.leave()
    answer = answer_with(made, images)
    length = length_of(answer)
    at_once = length <= CHUNK and all(isinstance(image, BytesIO) for image in images)
    return Pieces(
        b"".join(written(answer)) if at_once else written(answer),
        length,
        "application/json",
        files=images,
        headers=taken.headers,
        sent=lambda: desk.shelf.collect(job),
    )


async def _streamed(desk: Desk, taken: Taken, request: Request) -> EventStream:
    """The answer that begins at once. Raises FileNotFoundError where the images have made room since."""
    job = taken.job
    try:
        ready = await _opened(job) if job.done and job.error is None else []
    except BaseException:
        job.leave()
        raise

    def ended() -> None:
        job.leave()
        for image in ready:
            image.close()

    return EventStream(_events(desk, job, request.is_disconnected, ready), taken.headers, ended)


def _made(job: Job) -> dict[str, Any]:
    """What an answer says beside the images. Raises ApiError for a job that made none."""
    if job.error is not None or not job.done:
        raise of_job(job.error or CANCELLED)
    return {
        "created": job.completed_at,
        "output_format": "png",
        "size": f"{job.request.width}x{job.request.height}",
        "seed": job.request.seed,
    }


def _urls(job: Job, request: Request) -> list[dict[str, str]]:
    urls = (request.url_for("image_content", image_id=job.id, index=number) for number in range(job.request.count))
    return [{"url": str(url)} for url in urls]


async def _opened(job: Job) -> list[BinaryIO]:
    """The images of a completed job, which whoever follows it from before its end has for certain."""
    assert job.content is not None
    parts = job.in_hand or job.content.parts
    in_memory = all(isinstance(part, bytes) for part in parts)
    return opened(parts) if in_memory else await run_in_threadpool(opened, parts)


async def _events(desk: Desk, job: Job, gone: Gone, ready: list[BinaryIO]) -> AsyncIterator[bytes]:
    """The steps, then each image; or why there is none."""
    async for changed in changes(job, gone):
        if not changed:
            yield STILL_HERE
        elif not job.done:
            state = {"status": job.status, "progress": job.progress, "step": job.step, "steps": job.request.all_steps}
            yield event("image_generation.progress", state)
    if not job.done:
        return
    try:
        made = _made(job)
    except ApiError as error:
        yield error_event(error)
        return
    made["created_at"] = made.pop("created")
    for image in ready or await _opened(job):
        with image:
            async for piece in iterate_in_threadpool(written(event_with("image_generation.completed", made, image))):
                yield piece
    desk.shelf.collect(job)
