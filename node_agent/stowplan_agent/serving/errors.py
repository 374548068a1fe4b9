"""Errors as OpenAI clients expect them: {"error": {"message", "type", "param", "code"}}, one sentence each."""

from __future__ import annotations

from typing import Final

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from stowplan_agent.serving.jobs import JobError
from stowplan_agent.serving.queue import Closed, Full
from stowplan_agent.serving.requests import Refused

INVALID: Final = "invalid_request_error"
_STATUS: Final = {"cancelled": 499, "failed": 500, "out_of_memory": 500}


class ApiError(Exception):
    """An answer other than success. ``message`` is one sentence that names the thing, the limit and the way out."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str,
        param: str | None = None,
        type_: str = INVALID,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.param, self.type = status, message, code, param, type_
        self.retry_after = retry_after
        """Seconds, for the Retry-After header."""

    def response(self) -> JSONResponse:
        """The HTTP answer."""
        body = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        headers = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        return JSONResponse({"error": body}, self.status, headers)


def bad_value(message: str, param: str | None = None, code: str = "invalid_value") -> ApiError:
    """400: the client must change the request."""
    return ApiError(400, message, code=code, param=param)


def not_ready(phase: str, message: str) -> ApiError:
    """503: the placement of this boot is not validated yet, or the server stops."""
    reason = f": {message}" if message else ""
    text = f"the server is not ready (phase {phase}){reason}; ask again when GET /health answers 200"
    return ApiError(503, text, code="not_ready", type_="server_error", retry_after=5)


def of_job(error: JobError) -> ApiError:
    """A job that failed: 500, or 499 when it was cancelled."""
    return ApiError(_STATUS[error.code], error.message, code=error.code, type_="server_error")


def of_submit(error: Closed | Full | Refused, phase: str) -> ApiError:
    """A request that the queue did not take: 503, 429 or 422."""
    if isinstance(error, Full):
        return ApiError(429, str(error), code="queue_full", type_="rate_limit_error", retry_after=error.retry_after)
    if isinstance(error, Refused):
        return ApiError(422, str(error), code="does_not_fit")
    return not_ready(phase, str(error))


def install(app: FastAPI) -> None:
    """Make every error of the app leave in this form: its own, the router's (404, 405), and the unforeseen (500)."""

    async def own(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, ApiError)
        return error.response()

    async def routers(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        code = "not_found" if error.status_code == 404 else "invalid_request"
        listed = "; GET /openapi.json lists what there is" if error.status_code in (404, 405) else ""
        message = f"{request.method} {request.url.path}: {error.detail}{listed}"
        response = ApiError(error.status_code, message, code=code).response()
        response.headers.update(error.headers or {})
        return response

    async def unforeseen(request: Request, error: Exception) -> JSONResponse:
        # uvicorn logs the traceback: Starlette raises the error again after this answer.
        message = f"the server failed with {type(error).__name__}; its log has the details"
        return ApiError(500, message, code="internal_error", type_="server_error").response()

    app.add_exception_handler(ApiError, own)
    app.add_exception_handler(HTTPException, routers)
    app.add_exception_handler(Exception, unforeseen)
