"""Every error of the API as ``application/problem+json`` (RFC 9457); on OpenAI's routes in OpenAI's shape."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.exc import InterfaceError, InternalError, OperationalError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException

from api_gateway.logs import in_a_line
from harness_worker.databases import READ_ONLY, is_read_only

MEDIA_TYPE: Final = "application/problem+json"
CODES: Final[Mapping[str, int]] = {
    "unauthorized": 401,
    "budget_exhausted": 402,
    "forbidden": 403,
    "not_found": 404,
    "unknown_agent": 404,
    "method_not_allowed": 405,
    "body_too_slow": 408,
    "approval_required": 409,
    "idempotency_in_flight": 409,
    "session_busy": 409,
    "turn_finished": 409,
    "stale_input": 409,
    "payload_too_large": 413,
    "range_not_satisfiable": 416,
    "invalid_request": 422,
    "idempotency_mismatch": 422,
    "rate_limited": 429,
    "queue_full": 429,
    "internal": 500,
    "turn_failed": 502,
    "not_ready": 503,
    "turn_unfinished": 504,
}
"""Every code with its status (docs/reference/events.md)."""

OPENAI_PATHS: Final = ("/v1/models", "/v1/responses", "/v1/chat/")
OPENAI_TYPES: Final[Mapping[int, str]] = {402: "insufficient_quota", 429: "rate_limit_exceeded"}
"""What OpenAI calls errors that say no to who asks, not to what."""

NO_RETRY: Final = {"x-should-retry": "false"}
"""OpenAI's clients repeat a request that failed unless they are told not to: it would run a second turn."""

MAY_BE_MADE: Final = "the turn may have been made: look for it with GET /v1/turns before you ask again"
MOST_PROBLEMS: Final = 20
"""Of one request so many are told: a batch may have thousands."""

TOO_SHORT: Final = frozenset({"too_short", "string_too_short"})
"""Pydantic's types of an error in a text or a list."""

UNREACHABLE: Final = (OperationalError, InterfaceError, PoolTimeout, ProgrammingError, InternalError)
"""What SQLAlchemy raises when the database does not answer or is not migrated; the last two only sometimes."""

AFTER_RUSH_S: Final = 5
"""Retry-After, in seconds, when the connection pool is exhausted."""

TAKES_NO_WRITES: Final = "the database takes no writes: it is a replica, or read-only; see HARNESS_DATABASE_URL"
NO_BUGS: Final = frozenset({"42P01", "25P03", "25P04", "XX000", READ_ONLY})
"""Postgres' SQLSTATEs of operational trouble, not bugs: tables missing, transaction idle or too long, an error of its
own, server read-only; those of the worker's ``adapters/sql/failures.py`` that SQLAlchemy calls internal or programming
errors."""
_log = logging.getLogger(__name__)


class FieldProblem(BaseModel):
    """One thing that is wrong with a request: where, and what."""

    loc: list[str | int]
    msg: str


class ProblemDocument(BaseModel):
    """An error as clients read it; ``code`` is stable, ``detail`` is for people."""

    model_config = ConfigDict(extra="allow")

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    code: str
    errors: list[FieldProblem] | None = Field(default=None, description="what is wrong, one entry a place")


class OpenAIError(BaseModel):
    """What was wrong, as OpenAI's clients read it; ``code`` is stable, ``message`` is for people."""

    message: str
    type: str
    code: str
    param: str | None


class OpenAIErrorDocument(BaseModel):
    """An error on OpenAI's routes."""

    error: OpenAIError


class Problem(Exception):  # noqa: N818 - named after RFC 9457's word
    """Raise to answer with a problem document.

    Args:
        code: The stable code, one of ``CODES``.
        detail: What was wrong and what to do, for a person.
        errors: For ``invalid_request``: ``{loc, msg}`` of each thing that is wrong.
        headers: Response headers to add.
        extra: Members to add to the document.
        status: The HTTP status, if it is not the code's.
    """

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        errors: Sequence[FieldProblem] = (),
        headers: Mapping[str, str] | None = None,
        extra: Mapping[str, Any] | None = None,
        status: int | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status or CODES[code]
        self.code = code
        self.detail = detail
        self.errors = tuple(errors)
        self.headers = dict(headers or {})
        self.extra = dict(extra or {})

    def document(self) -> dict[str, Any]:
        """The JSON body."""
        head = {"type": "about:blank", "title": HTTPStatus(self.status).phrase, "status": self.status}
        body = {**head, "detail": self.detail, "code": self.code, **self.extra}
        return {**body, "errors": [error.model_dump() for error in self.errors]} if self.errors else body

    def openai_document(self) -> dict[str, Any]:
        """The JSON body for OpenAI's clients; ``param`` is the place of the first thing that is wrong."""
        usual = "server_error" if self.status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"
        kind = OPENAI_TYPES.get(self.status, usual)
        param = ".".join(map(str, self.errors[0].loc[1:])) if self.errors else ""
        error = OpenAIError(message=self.detail, type=kind, code=self.code, param=param or None)
        return OpenAIErrorDocument(error=error).model_dump()

    def response(self, path: str) -> JSONResponse:
        """The whole HTTP response, in the shape that clients of the path read."""
        if path.startswith(OPENAI_PATHS):
            return JSONResponse(self.openai_document(), self.status, self.headers)
        return JSONResponse(self.document(), self.status, self.headers, MEDIA_TYPE)


def invalid(errors: Sequence[FieldProblem]) -> Problem:
    """A request that is not as it should be: 422 ``invalid_request``, naming each place."""
    detail = "; ".join(f"{'.'.join(map(str, error.loc))}: {error.msg}" for error in errors)
    return Problem("invalid_request", detail, errors=errors)


def invalid_at(loc: Sequence[str | int], msg: str) -> Problem:
    """A request with one thing wrong."""
    return invalid([FieldProblem(loc=list(loc), msg=msg)])


def field_problems(errors: Sequence[Mapping[str, Any]], *prefix: str) -> list[FieldProblem]:
    """Pydantic's errors as ours, the first of them; a value's text is never repeated, for it may be long or secret."""
    told = [
        FieldProblem(loc=[*prefix, *(_printable(part) for part in error["loc"])], msg=_message(error))
        for error in errors[:MOST_PROBLEMS]
    ]
    others = len(errors) - len(told)
    return [*told, FieldProblem(loc=[*prefix], msg=f"and {others} more are wrong")] if others else told


def _printable(part: str | int) -> str | int:
    return part if isinstance(part, int) else part[:200]


def _message(error: Mapping[str, Any]) -> str:
    message = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] in TOO_SHORT and error["ctx"]["min_length"] == 1:
        return "must not be empty"
    if error["type"] == "too_long" and error["ctx"]["field_type"] == "Value":  # of a text whose characters were checked
        return "must have at most {max_length} characters, not {actual_length}".format_map(error["ctx"])
    return "unknown field" if error["type"] == "extra_forbidden" else message


def takes_no_writes(error: Exception) -> bool:
    """Whether SQLAlchemy says with it that the server refused a write because it only reads."""
    return is_read_only(getattr(error, "orig", None))


def no_database(error: Exception) -> Problem:
    """503 for one of ``UNREACHABLE``, which is logged; raises it if it is a bug."""
    if isinstance(error, ProgrammingError | InternalError) and getattr(error.orig, "sqlstate", None) not in NO_BUGS:
        raise error
    if isinstance(error, PoolTimeout):
        _log.warning("too many requests at once wait for a connection to the database")
        detail = "more requests at once than this gateway can work on: try again in some seconds"
        return Problem("not_ready", detail, headers={"Retry-After": str(AFTER_RUSH_S)})
    refused = takes_no_writes(error)
    _log.warning("the database %s: %s", "takes no writes" if refused else "does not answer", in_a_line(error))
    silent = "the database does not answer or is not migrated; try again soon, and see /readyz"
    detail = TAKES_NO_WRITES if refused else silent
    return Problem("not_ready", detail, headers={"Retry-After": "1"}, extra={"missing": ["database"]})


def forbid_retry(request: Request) -> None:
    """Note that what was asked for may have been made: no error has the client repeat the request by itself."""
    request.state.may_be_made = True


def install_problem_handlers(app: FastAPI) -> None:
    """Make every error that leaves a route a problem document."""
    app.add_exception_handler(Problem, _on_problem)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)
    for unreachable in UNREACHABLE:
        app.add_exception_handler(unreachable, _on_database)
    app.add_exception_handler(Exception, _on_bug)


async def _on_problem(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, Problem)  # noqa: S101 - what it is registered for
    return error.response(request.url.path)


async def _on_invalid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - what it is registered for
    return invalid(field_problems(error.errors())).response(request.url.path)


async def _on_http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)  # noqa: S101 - what it is registered for
    path = request.url.path
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = ", ".join(_allowed_methods(request))
        detail = f"{request.method} is not possible at {path}; allowed: {allowed}"
        return Problem("method_not_allowed", detail, headers={"Allow": allowed}).response(path)
    if error.status_code == HTTPStatus.NOT_FOUND:
        return Problem("not_found", f"there is nothing at {path}; see /docs for what there is").response(path)
    code = "invalid_request" if error.status_code < 500 else "internal"
    return Problem(code, str(error.detail), headers=error.headers, status=error.status_code).response(path)


def _allowed_methods(request: Request) -> list[str]:
    """The methods of every route with this path, HEAD where there is GET; routers report only their first match."""
    app: FastAPI = request.app
    methods: set[str] = set()
    for template, operations in app.openapi()["paths"].items():
        if re.fullmatch(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(template)), request.url.path):
            methods |= {method.upper() for method in operations}
    methods = methods or {"GET"}
    return sorted(methods | {"HEAD"} if "GET" in methods else methods)


async def _on_database(request: Request, error: Exception) -> JSONResponse:
    problem = no_database(error)
    if _may_be_made(request):
        detail = f"the database does not answer, and {MAY_BE_MADE}"
        problem = Problem(problem.code, detail, headers=NO_RETRY, extra=problem.extra)
    return problem.response(request.url.path)


async def _on_bug(request: Request, _error: Exception) -> JSONResponse:
    detail = "an unexpected error in the gateway; its log tells more"
    headers = {"Connection": "close"}  # the server closes it, for the error goes on to it; the client must know
    if _may_be_made(request):
        detail, headers = f"{detail}; {MAY_BE_MADE}", {**headers, **NO_RETRY}
    return Problem("internal", detail, headers=headers).response(request.url.path)


def _may_be_made(request: Request) -> bool:
    return getattr(request.state, "may_be_made", False)
