"""The routes of videos: a job that is made while nobody waits, looked at, followed, fetched, cancelled and deleted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool

from stowplan_agent.serving.answers import TAKING, Video, VideoDeleted, Videos, answer, events_of, file_of, other
from stowplan_agent.serving.bodies import video_request
from stowplan_agent.serving.desk import Desk, must_be, not_here
from stowplan_agent.serving.downloads import file_answer
from stowplan_agent.serving.errors import ApiError
from stowplan_agent.serving.events import STILL_HERE, EventStream, event
from stowplan_agent.serving.fields import VideoBody
from stowplan_agent.serving.idempotency import Key
from stowplan_agent.serving.jobs import Job
from stowplan_agent.serving.payload import accepts, read_body
from stowplan_agent.serving.ranges import Range
from stowplan_agent.serving.waiting import Gone, changes

Described = Callable[[Job], dict[str, Any]]
"""A job as clients see it."""


def video_routes(desk: Desk) -> APIRouter:
    """POST /v1/videos and what follows it."""
    router = APIRouter(tags=["videos"])

    def found(video_id: str) -> Job:
        return must_be(desk.shelf.get(video_id), "video", video_id)

    def described(job: Job) -> dict[str, Any]:
        defaults = desk.known()
        return video_object(job, defaults.model if defaults else "", defaults.fps if defaults else 1)

    @router.post("/v1/videos", openapi_extra=accepts(VideoBody), responses=answer(Video, *TAKING), response_model=None)
    async def create(request: Request, idempotency_key: Key = None) -> Response:
        """Queue a video and answer at once with its job."""
        defaults = await desk.enter(idempotency_key)
        body = await read_body(VideoBody, request)
        taken = await desk.take(video_request(body, defaults, desk.seeds), body, idempotency_key)
        return JSONResponse(described(taken.job), headers=taken.headers)

    @router.get("/v1/videos", responses=answer(Videos, 400), response_model=None)
    async def listed(
        after: Annotated[str | None, Query(max_length=80, description="the last id of the page before")] = None,
        limit: Annotated[int, Query(ge=1, le=100)] = 20,
        order: Annotated[Literal["asc", "desc"], Query(description="by age; desc: the newest first")] = "desc",
    ) -> dict[str, Any]:
        """The jobs that are there, in pages."""
        jobs, more = desk.shelf.page("video", after, limit, newest_first=order == "desc")
        ends = {"first_id": jobs[0].id if jobs else None, "last_id": jobs[-1].id if jobs else None}
        return {"object": "list", "data": [described(job) for job in jobs], **ends, "has_more": more}

    @router.get("/v1/videos/{video_id}", responses=answer(Video, 404), response_model=None)
    async def retrieve(video_id: str) -> dict[str, Any]:
        """The job: queued, in_progress with percent and step, completed, or failed with its error."""
        job = found(video_id)
        if job.status == "failed":
            desk.shelf.collect(job)
        return described(job)

    @router.get(
        "/v1/videos/{video_id}/events",
        responses=other(events_of("data: the job after a change"), "The job until it has ended.", 404),
        response_class=Response,
    )
    async def follow(video_id: str, request: Request) -> Response:
        """The job as server-sent events: video.progress, then video.completed or video.failed."""
        return EventStream(_events(desk, found(video_id), described, request.is_disconnected))

    @router.get(
        "/v1/videos/{video_id}/content",
        responses=file_of("video/mp4", "The MP4.", 400, 404, 409),
        response_class=Response,
    )
    async def content(
        video_id: str, request: Request, byte_range: Range = None, variant: Literal["video"] = "video"
    ) -> Response:
        """The MP4 of a completed job."""
        job = found(video_id)
        try:
            return await file_answer(_file(job), "video/mp4", request.headers, lambda: desk.shelf.collect(job))
        except FileNotFoundError:
            raise not_here("video", video_id) from None

    @router.post("/v1/videos/{video_id}/cancel", responses=answer(Video, 404, 409), response_model=None)
    async def cancel(video_id: str) -> dict[str, Any]:
        """End the job: at once while it waits, within one step while it runs. It stays, as failed."""
        job = found(video_id)
        await run_in_threadpool(job.cancel)
        if job.status == "completed":
            raise ApiError(409, f"video {job.id} is completed; DELETE removes it", code="already_completed")
        if job.status == "failed":
            desk.shelf.collect(job)
        return described(job)

    @router.delete("/v1/videos/{video_id}", responses=answer(VideoDeleted, 404), response_model=None)
    async def delete(video_id: str) -> dict[str, Any]:
        """Forget the job and its file; one that waits or runs is cancelled."""
        job = must_be(await run_in_threadpool(desk.shelf.take, found(video_id).id), "video", video_id)
        await run_in_threadpool(job.cancel)
        return {"id": job.id, "object": "video.deleted", "deleted": True}

    return router


def video_object(job: Job, model: str, fps: int) -> dict[str, Any]:
    """OpenAI's video object, with step, steps, frames and seed beside it."""
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
        "step": job.step,
        "steps": request.steps,
        "seed": request.seed,
    }


def _file(job: Job) -> Path:
    """The MP4. Raises ApiError (409) where there is none, or none yet."""
    if job.error is not None:
        raise ApiError(409, f"video {job.id} has no content: {job.error.message}", code=job.error.code)
    if job.content is None:
        message = f"video {job.id} is {job.status} ({job.progress} %); ask again when its status is completed"
        raise ApiError(409, message, code="not_completed")
    return job.content.file(0)


async def _events(desk: Desk, job: Job, described: Described, gone: Gone) -> AsyncIterator[bytes]:
    async for changed in changes(job, gone):
        if not changed:
            yield STILL_HERE
        elif not job.done:
            yield event("video.progress", described(job))
    if job.done:
        yield event(f"video.{job.status}", described(job))
        if job.status == "failed":
            desk.shelf.collect(job)
