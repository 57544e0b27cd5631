"""The gateway's answers: documents, streams of events, and refusals."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast
from urllib.parse import urlsplit

import httpx2

from harness_worker.errors import HarnessError, TransientError
from harness_worker.urls import host_of, is_loopback, masked
from harness_worker.wire import JsonObject

_GIVEN: Final = "base_url, --url or HARNESS_GATEWAY_URL"
"""How callers in Python, and those of the command line, name a gateway."""


class StackUnreachable(TransientError):  # noqa: N818 - reads as what it says
    """Nothing answers at the gateway's address; the message says how to start a stack.

    Args:
        message: Where nothing answers, and what to do.
        reason: What went wrong with the connection.
    """

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


class RequestRefused(HarnessError):  # noqa: N818 - reads as what it says
    """The gateway answered with a problem document.

    Args:
        status: The HTTP status.
        code: The problem's stable code, such as ``unknown_agent``.
        detail: What was wrong, for people.
        problem: The whole problem document.
        retry_after_s: How long the gateway asks to wait before the next try, in seconds, if it does.
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        problem: Mapping[str, Any] | None = None,
        *,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(status, code, detail)  # pickle calls the class with these
        self.status = status
        self.code = code
        self.detail = detail
        self.problem = dict(problem or {})
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        return f"{self.detail} ({self.status} {self.code})"


def events_in(response: httpx2.Response) -> Iterator[JsonObject | None]:
    """The events of a server-sent stream; each has its document in one ``data`` line, and ends with an empty one.

    An event without an end is left out: a proxy may have cut the stream within it. ``None`` is a comment.

    Raises:
        RequestRefused: A whole event is none of a turn, so it is not the gateway that answers.
    """
    data = ""
    for line in response.iter_lines():
        if line.startswith(":"):
            yield None
        elif line.startswith("data:"):
            data = line.removeprefix("data:")
        elif data and not line:
            yield object_in(parsed(data), "type", response)
            data = ""


def how_to_start(url: str, reason: str) -> str:
    """The message for a user whose gateway does not answer; ``harness up`` serves this machine alone."""
    said = f"nothing answers at {masked(url)} ({reason})."
    named = f"give the address of a running one with {_GIVEN}."
    if not is_loopback(host_of(url)):
        return f"{said} Start a gateway there, or {named}"
    port = urlsplit(url).port
    at = f" --port {port}" if port else ""
    return f"{said} Start a stack with\n  harness up --app package.module:registry{at}\nor {named}"


def no_address(url: str) -> str:
    """The message for a user who gave something else than the URL of a gateway."""
    return f"{masked(url)!r} is no address of a gateway: give http://HOST:PORT with {_GIVEN}"


def has_type(response: httpx2.Response, media_type: str) -> bool:
    """Whether an answer says that it is of this type."""
    return response.headers.get("content-type", "").startswith(media_type)


def body_of(response: httpx2.Response, member: str) -> JsonObject:
    """The JSON object of a successful answer, which has this member.

    Raises:
        RequestRefused: It is not one, so it was not the gateway that answered.
    """
    return object_in(parsed(response.content), member, response)


def text_of(response: httpx2.Response) -> str:
    """The text of a successful answer.

    Raises:
        RequestRefused: It is of another type, so it was not the gateway that answered.
    """
    if has_type(response, "text/plain"):
        return response.text
    raise unexpected(response)


def object_in(found: object, member: str, response: httpx2.Response) -> JsonObject:
    """What was ``found`` in a successful answer, an object that has this member.

    Raises:
        RequestRefused: It is not one, so it was not the gateway that answered.
    """
    if isinstance(found, dict) and member in found:
        return cast("JsonObject", found)
    raise unexpected(response)


def parsed(text: str | bytes) -> object:
    """What a JSON document says; ``None`` if it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def unexpected(response: httpx2.Response) -> RequestRefused:
    """The error that it was not the gateway that answered."""
    url = masked(str(response.url))
    if response.has_redirect_location:
        elsewhere = masked(response.headers["location"])
        detail = f"{url} answered {response.status_code} and points to {elsewhere}: give the gateway's own address"
    else:
        detail = f"{url} answered {response.status_code} with something unexpected: is it the gateway?"
    return RequestRefused(response.status_code, "unexpected_answer", detail, retry_after_s=_retry_after_s(response))


def refusal_of(response: httpx2.Response) -> RequestRefused:
    """A problem document as an error; any other answer is reported as unexpected."""
    try:
        problem: JsonObject = response.json()
        detail = _places(problem) or problem.get("detail") or problem["title"]
        told = _about_keys(response) if problem["code"] == "unauthorized" else detail
        if "/v1/v1/" in response.url.path:
            told = f"{told}; the gateway's address ends before /v1, which only OpenAI's clients are given"
        after_s = _retry_after_s(response)
        return RequestRefused(response.status_code, str(problem["code"]), told, problem, retry_after_s=after_s)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return unexpected(response)


def _retry_after_s(response: httpx2.Response) -> float | None:
    """``Retry-After`` in seconds; ``None`` for a date, which only a proxy may send."""
    given = response.headers.get("Retry-After", "")
    return float(given) if given.isascii() and given.isdigit() else None


def _about_keys(response: httpx2.Response) -> str:
    """Why the gateway refused the key, in terms of settings, because nobody who reads this sets headers."""
    url = masked(str(response.url.copy_with(path="/", query=None)))
    if response.request.headers.get("authorization", "").startswith("Bearer "):
        wrong = f"the gateway at {url} refuses the API key: it is unknown there, expired or revoked"
    else:
        wrong = f"the gateway at {url} asks for an API key"
    return f"{wrong}. Set HARNESS_API_KEY or api_key to one that `harness keys create` made"


def _places(problem: JsonObject) -> str:
    """The validation errors of a request, one per line; the problem's ``detail`` has them on one line."""
    errors: list[JsonObject] = problem.get("errors") or []
    return "\n  ".join(f"{'.'.join(str(part) for part in error['loc'])}: {error['msg']}" for error in errors)
