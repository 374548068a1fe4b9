"""The routes of images and videos: read a body, queue it, answer.

No handler blocks the event loop: waiting for a job is an asyncio event set from the worker's thread, and PNGs are made
on a thread of their own. Liveness therefore answers whatever the device does.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from typing import Any, Final

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from stowplan_agent.serving import media
from stowplan_agent.serving.bodies import (
    Defaults,
    ImageBody,
    Seeds,
    ServingDefaults,
    VideoBody,
    image_request,
    video_request,
)
from stowplan_agent.serving.door import Door
from stowplan_agent.serving.errors import ApiError, bad_value, not_ready, of_job, of_submit
from stowplan_agent.serving.jobs import Job
from stowplan_agent.serving.payload import accepts, read_body
from stowplan_agent.serving.queue import Closed, Full, RequestQueue
from stowplan_agent.serving.requests import Frames, GenerationRequest, Refused
from stowplan_agent.serving.shelf import Shelf

HANG_UP_POLL: Final = 0.2
"""Seconds between looks at whether the client of a synchronous request is still there."""


class Desk:
    """What every route shares: who may enter, with which defaults, and into which queue."""

    def __init__(self, door: Door, queue: RequestQueue, defaults: Defaults, seeds: Seeds) -> None:
        self._door = door
        self._queue = queue
        self._defaults = defaults
        self.seeds = seeds

    def known(self) -> ServingDefaults | None:
        """The defaults, or None while the model is not known yet."""
        return self._defaults() if callable(self._defaults) else self._defaults

    def enter(self) -> ServingDefaults:
        """The defaults, for a request that may enter. Raises ApiError (503) before Ready."""
        state = self._door.state
        defaults = self.known()
        if not state.open or defaults is None:
            raise not_ready(state.phase, state.message)
        return defaults

    def submit(self, request: GenerationRequest) -> Job:
        """Queue a request. Raises ApiError: 503, 422 with numbers, or 429."""
        try:
            return self._queue.submit(request)
        except (Closed, Full, Refused) as error:
            raise of_submit(error, self._door.phase) from None


def image_routes(desk: Desk) -> APIRouter:
    """POST /v1/images/generations."""
    router = APIRouter(tags=["images"])

    @router.post("/v1/images/generations", openapi_extra=accepts(ImageBody))
    async def generate(request: Request) -> dict[str, Any]:
        """Make images and answer when they are there; the client's hanging up cancels the work."""
        defaults = desk.enter()
        wanted = image_request(await read_body(ImageBody, request), defaults, desk.seeds)
        job = await run_in_threadpool(desk.submit, wanted)
        await _until_done(job, request.is_disconnected)
        if job.error is not None or job.result is None:
            raise of_job(job.error) if job.error else ApiError(500, "the job has no result", code="failed")
        images = await run_in_threadpool(_pngs, job.result.frames)
        return {
            "created": job.completed_at,
            "output_format": "png",
            "size": f"{wanted.width}x{wanted.height}",
            "seed": wanted.seed,
            "data": [{"b64_json": image} for image in images],
        }

    return router


def video_routes(desk: Desk, shelf: Shelf) -> APIRouter:
    """POST /v1/videos and what follows it."""
    router = APIRouter(tags=["videos"])

    def found(video_id: str, job: Job | None) -> Job:
        if job is None:
            message = f"video {video_id[:80]!r} is not here; it never was, was deleted, or made room for newer ones"
            raise ApiError(404, message, code="video_not_found", param="video_id")
        return job

    def described(job: Job) -> dict[str, Any]:
        defaults = desk.known()
        return video_object(job, defaults.model if defaults else "", defaults.fps if defaults else 1)

    @router.post("/v1/videos", openapi_extra=accepts(VideoBody))
    async def create(request: Request) -> dict[str, Any]:
        """Queue a video and answer at once with its job."""
        defaults = desk.enter()
        wanted = video_request(await read_body(VideoBody, request), defaults, desk.seeds)
        job = await run_in_threadpool(desk.submit, wanted)
        shelf.put(job)
        return described(job)

    @router.get("/v1/videos/{video_id}")
    async def retrieve(video_id: str) -> dict[str, Any]:
        """The job: queued, in_progress with percent, completed, or failed with its error."""
        return described(found(video_id, shelf.get(video_id)))

    @router.get("/v1/videos/{video_id}/content", response_class=Response)
    async def content(video_id: str, variant: str = "video") -> Response:
        """The MP4 of a completed job."""
        job = found(video_id, shelf.get(video_id))
        if variant != "video":
            raise bad_value(f"variant {variant[:40]!r} is not made here; the only one is 'video'", "variant")
        if job.error is not None:
            raise ApiError(409, f"video {job.id} has no content: {job.error.message}", code=job.error.code)
        if job.content is None:
            message = f"video {job.id} is {job.status} ({job.progress} %); ask again when its status is completed"
            raise ApiError(409, message, code="not_completed")
        disposition = {"Content-Disposition": f'attachment; filename="{job.id}.mp4"'}
        return Response(job.content, media_type="video/mp4", headers=disposition)

    @router.delete("/v1/videos/{video_id}")
    async def delete(video_id: str) -> dict[str, Any]:
        """Forget the job; one that waits or runs is cancelled."""
        job = found(video_id, shelf.take(video_id))
        await run_in_threadpool(job.cancel)
        return {"id": job.id, "object": "video.deleted", "deleted": True}

    return router


def video_object(job: Job, model: str, fps: int) -> dict[str, Any]:
    """OpenAI's video object, with steps, frames and seed beside it."""
    request = job.request
    return {
        "id": job.id,
        "object": "video",
        "created_at": job.created_at,
        "completed_at": job.completed_at,
        "expires_at": None,
        "status": job.status,
        "progress": job.progress,
        "model": model,
        "prompt": request.prompt,
        "size": f"{request.width}x{request.height}",
        "seconds": f"{request.frames / fps:.4g}",
        "remixed_from_video_id": None,
        "error": None if job.error is None else {"code": job.error.code, "message": job.error.message},
        "frames": request.frames,
        "steps": request.steps,
        "seed": request.seed,
    }


async def _until_done(job: Job, gone: Callable[[], Awaitable[bool]]) -> None:
    """Wait for the end of a job; cancel it when the client is gone or the server stops waiting."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def tell() -> None:
        # The loop is closed when a job outlives the server; then nobody waits.
        if not loop.is_closed():
            loop.call_soon_threadsafe(ended.set)

    job.when_done(tell)
    try:
        while not job.done:
            try:
                await asyncio.wait_for(ended.wait(), HANG_UP_POLL)
            except TimeoutError:
                if await gone():
                    await run_in_threadpool(job.cancel)
    finally:
        if not job.done:
            job.cancel()


def _pngs(frames: Frames) -> list[str]:
    return [base64.b64encode(media.png(frame)).decode() for frame in frames]
