"""Handlers that turn every error raised by a route into a problem document."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from api_gateway.problems.database import UNREACHABLE, no_database
from api_gateway.problems.documents import NO_RETRY, Problem, field_problems, invalid

MAY_BE_MADE: Final = "the turn may have been made: look for it with GET /v1/turns before you ask again"


def forbid_retry(request: Request) -> None:
    """Note that the request may have made a turn: from now on, errors keep the client from repeating it by itself."""
    request.state.may_be_made = True


def cut_short(request: Request) -> Problem:
    """503 ``not_ready`` for a request that cannot be finished before the process stops."""
    closes = {"Connection": "close"}
    if _may_be_made(request):
        return Problem("not_ready", f"this gateway stops, and {MAY_BE_MADE}", headers={**closes, **NO_RETRY})
    return Problem("not_ready", "this gateway stops: send the request again", headers={**closes, "Retry-After": "1"})


def install_problem_handlers(app: FastAPI) -> None:
    """Have every error raised by a route answered with a problem document."""
    app.exception_handler(Problem)(_on_problem)
    app.exception_handler(RequestValidationError)(_on_invalid)
    app.exception_handler(HTTPException)(_on_http)
    for unreachable in UNREACHABLE:
        app.exception_handler(unreachable)(_on_database)
    app.exception_handler(Exception)(_on_bug)


async def _on_problem(request: Request, error: Problem) -> JSONResponse:
    return error.response(request.url.path)


async def _on_invalid(request: Request, error: RequestValidationError) -> JSONResponse:
    return invalid(field_problems(error.errors())).response(request.url.path)


async def _on_http(request: Request, error: HTTPException) -> JSONResponse:
    path = request.url.path
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = ", ".join(_allowed_methods(request))
        detail = f"{request.method} is not allowed at {path}; allowed: {allowed}"
        return Problem("method_not_allowed", detail, headers={"Allow": allowed}).response(path)
    if error.status_code == HTTPStatus.NOT_FOUND:
        return Problem("not_found", f"there is nothing at {path}; see /docs for what there is").response(path)
    code = "invalid_request" if error.status_code < 500 else "internal"
    return Problem(code, str(error.detail), headers=error.headers, status=error.status_code).response(path)


def _allowed_methods(request: Request) -> list[str]:
    """The methods of all routes with this path, with HEAD where there is GET; a router reports only its first match."""
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
    detail = "an unexpected error in the gateway; its log has the details"
    headers = {"Connection": "close"}  # the error also reaches the server, which closes it: the client must know
    if _may_be_made(request):
        detail, headers = f"{detail}; {MAY_BE_MADE}", {**headers, **NO_RETRY}
    return Problem("internal", detail, headers=headers).response(request.url.path)


def _may_be_made(request: Request) -> bool:
    return getattr(request.state, "may_be_made", False)
