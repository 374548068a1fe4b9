"""Errors as OpenAI clients expect them: {"error": {"message", "type", "param", "code"}}, one sentence each.

OpenAI's clients send a request again by themselves after 408, 409, 429 and 5xx. Where that would only repeat the
failure the answer says so (``x-should-retry: false``), and where it would help it says when (``Retry-After``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from stowplan_agent.serving.jobs import ErrorCode, JobError
from stowplan_agent.serving.queue import STOPPING, Closed, Full
from stowplan_agent.serving.requests import Refused

INVALID: Final = "invalid_request_error"
_STATUS: Final[dict[ErrorCode, int]] = {
    "cancelled": 499,
    "failed": 500,
    "out_of_memory": 500,
    "deadline_exceeded": 408,
    "stopping": 503,
}
AGAIN_AFTER_STOP: Final = 1
"""Seconds: another replica answers at once."""


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
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.param, self.type = status, message, code, param, type_
        self.retry_after = retry_after
        """Seconds, for the Retry-After header; None where sending the same again gives the same answer."""
        self.headers = dict(headers or {})
        """Beside those that follow from the above."""

    def body(self) -> dict[str, str | None]:
        """What is within ``error``; what a client wrote and is no Unicode is told as question marks."""
        found = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return {name: said and said.encode(errors="replace").decode() for name, said in found.items()}

    def response(self) -> JSONResponse:
        """The HTTP answer."""
        headers = {"x-should-retry": "false"} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        if self.code == "stopping":
            headers["Connection"] = "close"  # a pool's next connection goes to a replica that stays
        return JSONResponse({"error": self.body()}, self.status, headers | self.headers)


def bad_value(message: str, param: str | None = None, code: str = "invalid_value") -> ApiError:
    """400: the client must change the request."""
    return ApiError(400, message, code=code, param=param)


def not_ready(phase: str, message: str) -> ApiError:
    """503: the placement of this boot is not validated yet."""
    reason = f": {message}" if message else ""
    text = f"the server is not ready (phase {phase}){reason}; ask again when GET /health answers 200"
    return ApiError(503, text, code="not_ready", type_="server_error", retry_after=5)


def stopping() -> ApiError:
    """503: the server ends what it has begun, and takes nothing more."""
    text = "the server is stopping and takes no more requests; send it again, to another replica if there is one"
    return ApiError(503, text, code="stopping", type_="server_error", retry_after=AGAIN_AFTER_STOP)


def of_job(error: JobError) -> ApiError:
    """A job that failed: 500; 499, 408 or 503 when it was cancelled, by whom."""
    retry_after = AGAIN_AFTER_STOP if error.code == STOPPING.code else None
    return ApiError(_STATUS[error.code], error.message, code=error.code, type_="server_error", retry_after=retry_after)


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

    async def parameters(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        name = str(first["loc"][-1])
        return bad_value(f"{name} is {str(first['input'])[:60]!r}: {first['msg'].lower()}", name).response()

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
        headers = {"Connection": "close"}  # uvicorn closes it: a pool must not send the next request on it
        return ApiError(500, message, code="internal_error", type_="server_error", headers=headers).response()

    app.add_exception_handler(ApiError, own)
    app.add_exception_handler(RequestValidationError, parameters)
    app.add_exception_handler(HTTPException, routers)
    app.add_exception_handler(Exception, unforeseen)
