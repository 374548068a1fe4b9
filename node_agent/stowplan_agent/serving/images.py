"""The routes of images: made while the client waits, step by step if it likes; kept where it asks for a URL.

No handler blocks the event loop: waiting for a job is an asyncio event set from the worker's thread. Liveness therefore
answers whatever the device does. A client that hangs up ends its request within one step.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool

from stowplan_agent.serving.answers import TAKING, Images, answer, events_of, other, text_of
from stowplan_agent.serving.bodies import ImageBody, image_request
from stowplan_agent.serving.desk import Desk, must_be, not_here
from stowplan_agent.serving.downloads import file_answer
from stowplan_agent.serving.errors import ApiError, of_job
from stowplan_agent.serving.events import STILL_HERE, EventStream, error_event, event
from stowplan_agent.serving.idempotency import Key
from stowplan_agent.serving.jobs import CANCELLED, Job
from stowplan_agent.serving.payload import accepts, read_body
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
        defaults = desk.enter()
        body = await read_body(ImageBody, request)
        wanted = image_request(body, defaults, desk.seeds)
        by_url = body.response_format == "url"
        taken = await desk.take(wanted, body, idempotency_key, kept=by_url, followed=True)
        job = taken.job
        if body.stream:
            return EventStream(_events(desk, job, request.is_disconnected), taken.headers, job.leave)
        try:
            await until_done(job, request.is_disconnected)
        finally:
            job.leave()
        made = _made(job)
        if by_url:  # it is collected where the URLs lead
            return JSONResponse(made | {"data": _urls(job, request)}, headers=taken.headers)
        made["data"] = await run_in_threadpool(_encoded, job)
        desk.shelf.collect(job)
        return JSONResponse(made, headers=taken.headers)

    @router.get(
        "/v1/images/{image_id}/{index}/content",
        name="image_content",
        responses=other({"image/png": text_of("bytes")}, "The image.", 400, 404),
        response_class=Response,
    )
    async def content(image_id: str, index: int) -> Response:
        """One image that was asked for as a URL."""
        job = must_be(desk.shelf.get(image_id), "image", image_id)
        made = 0 if job.content is None else len(job.content.parts)
        if job.content is None or not 0 <= index < made:
            message = f"{job.id} has {made} images, counted from 0, and none numbered {index}"
            raise ApiError(404, message, code="image_not_found", param="index")
        try:
            path, name = job.content.file(index), f"{job.id}-{index}.png"
            return await file_answer(path, "image/png", name, lambda: desk.shelf.collect_part(job, index))
        except FileNotFoundError:
            raise not_here("image", image_id) from None

    return router


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


def _encoded(job: Job) -> list[dict[str, str]]:
    assert job.content is not None
    try:
        return [{"b64_json": _base64(job, number)} for number in range(len(job.content.parts))]
    except FileNotFoundError:
        raise not_here("image", job.id) from None


def _base64(job: Job, number: int) -> str:
    assert job.content is not None
    return base64.b64encode(job.content.read(number)).decode()


async def _events(desk: Desk, job: Job, gone: Gone) -> AsyncIterator[bytes]:
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
        images = await run_in_threadpool(_encoded, job)
    except ApiError as error:
        yield error_event(error)
        return
    made["created_at"] = made.pop("created")
    for image in images:
        yield event("image_generation.completed", made | image)
    desk.shelf.collect(job)
