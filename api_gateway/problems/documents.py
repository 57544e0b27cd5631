"""Errors as clients read them: problem documents (RFC 9457), or on OpenAI's routes documents in OpenAI's format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from harness_worker.validation import complaint

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
"""OpenAI's types of the errors that refuse the client, not the request."""

NO_RETRY: Final = {"x-should-retry": "false"}
"""Keeps OpenAI's clients from repeating a failed request by themselves, which would run a second turn."""

MOST_PROBLEMS: Final = 20
"""How many problems of one request are reported: a batch may have thousands."""

TOO_SHORT: Final = frozenset({"too_short", "string_too_short"})
"""Pydantic's error types for a text or a list that is too short."""


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
    errors: list[FieldProblem] | None = Field(default=None, description="what is wrong with the request, by place")


class OpenAIError(BaseModel):
    """An error as OpenAI's clients read it; ``code`` is stable, ``message`` is for people."""

    message: str
    type: str
    code: str
    param: str | None


class OpenAIErrorDocument(BaseModel):
    """The body of an error on OpenAI's routes."""

    error: OpenAIError


class Problem(Exception):  # noqa: N818 - named after RFC 9457's word
    """An error to answer with a problem document.

    Args:
        code: The stable code, one of ``CODES``.
        detail: What was wrong and what to do, for a person.
        errors: For ``invalid_request``: the place and the message of each thing that is wrong.
        headers: Response headers to add.
        extra: Members to add to the document.
        status: The HTTP status, if it differs from the code's.
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
        """The JSON body for OpenAI's clients; ``param`` is the place of the first of ``errors``."""
        usual = "server_error" if self.status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"
        kind = OPENAI_TYPES.get(self.status, usual)
        param = ".".join(map(str, self.errors[0].loc[1:])) if self.errors else ""
        error = OpenAIError(message=self.detail, type=kind, code=self.code, param=param or None)
        return OpenAIErrorDocument(error=error).model_dump()

    def response(self, path: str) -> JSONResponse:
        """The whole HTTP response, in the format that clients of the path read."""
        if path.startswith(OPENAI_PATHS):
            return JSONResponse(self.openai_document(), self.status, self.headers)
        return JSONResponse(self.document(), self.status, self.headers, MEDIA_TYPE)


def invalid(errors: Sequence[FieldProblem]) -> Problem:
    """422 ``invalid_request`` for a request with several things wrong; the detail names the place of each."""
    detail = "; ".join(f"{'.'.join(map(str, error.loc))}: {error.msg}" for error in errors)
    return Problem("invalid_request", detail, errors=errors)


def invalid_at(loc: Sequence[str | int], msg: str) -> Problem:
    """422 ``invalid_request`` for a request with one thing wrong."""
    return invalid([FieldProblem(loc=list(loc), msg=msg)])


def field_problems(errors: Sequence[Mapping[str, Any]], *prefix: str) -> list[FieldProblem]:
    """The first of Pydantic's errors, as the API reports them; never with the values, which may be long or secret."""
    shown = [
        FieldProblem(loc=[*prefix, *(_printable(part) for part in error["loc"])], msg=_message(error))
        for error in errors[:MOST_PROBLEMS]
    ]
    others = len(errors) - len(shown)
    return [*shown, FieldProblem(loc=[*prefix], msg=f"and {others} more are wrong")] if others else shown


def _printable(part: str | int) -> str | int:
    return part if isinstance(part, int) else part[:200]


def _message(error: Mapping[str, Any]) -> str:
    if error["type"] in TOO_SHORT and error["ctx"]["min_length"] == 1:
        return "must not be empty"
    if error["type"] == "too_long" and error["ctx"]["field_type"] == "Value":  # a text whose characters were checked
        return "must have at most {max_length} characters, not {actual_length}".format_map(error["ctx"])
    return "unknown field" if error["type"] == "extra_forbidden" else complaint(error)
