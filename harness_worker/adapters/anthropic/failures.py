"""Translates the SDK's errors into transient and permanent ones. They never contain a key or a header."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any, Final, cast

import httpx2
from anthropic import APIConnectionError, APIStatusError, APITimeoutError

from harness_worker.core.canonical import compact
from harness_worker.errors import SHORTAGES, HarnessError, ModelError, PromptTooLong, TransientError
from harness_worker.urls import no_environment

RETRIED_STATUSES: Final = frozenset({408, 409, 429})
RETRIED_TYPES: Final = frozenset({"overloaded_error", "rate_limit_error", "api_error", "timeout_error"})
MAX_MESSAGE_CHARS: Final = 500
MAX_ID_CHARS: Final = 100
_TOO_LONG: Final = ("prompt is too long", "input is too long", "exceed context limit")


def told_by_status(error: APIStatusError) -> HarnessError:
    """The meaning of an error response; an ``error`` event inside a stream has status 200."""
    message = _message(error)
    if _may_pass(error):
        return TransientError(message, retry_after_s=_retry_after_s(error))
    return PromptTooLong(message) if _is_too_long(error) else ModelError(message)


def told_by_event(event: Mapping[str, Any], *, key: str) -> HarnessError:
    """The meaning of an event of type ``error`` that came under another name, so that the SDK passed it on."""
    given: object = event.get("error")
    error = cast("Mapping[str, object]", given) if isinstance(given, Mapping) else {"message": given}
    kind = error.get("type")
    told = _without_key(f"the model's provider answered {kind}: {error.get('message')}", key)[:MAX_MESSAGE_CHARS]
    return TransientError(told) if not isinstance(kind, str) or kind in RETRIED_TYPES else ModelError(told)


def told_by_no_events(response: httpx2.Response, *, key: str) -> TransientError:
    """The meaning of a successful response without a single event, such as a proxy's page to log in."""
    kind = _without_key(response.headers.get("content-type", "unknown"), key)[:MAX_MESSAGE_CHARS]
    return TransientError(f"the model's provider sent a body of type {kind!r} without any part of a message")


def told_by_connection(error: Exception) -> HarnessError:
    """A connection error in our own words, because ``LocalProtocolError`` quotes the header that holds the key."""
    if isinstance(error, APITimeoutError):
        return TransientError("the model's provider did not answer in time")
    cause = error.__cause__ if isinstance(error, APIConnectionError) and error.__cause__ else error
    if isinstance(cause, httpx2.LocalProtocolError):
        told = "the model's provider cannot be asked: ANTHROPIC_API_KEY holds characters that no header may hold"
        return ModelError(told)
    return TransientError(f"the connection to the model's provider failed: {str(cause) or type(cause).__name__}")


def told_by_environment(error: Exception) -> HarnessError:
    """The meaning of an error before a connection was tried, without its own words: a proxy's may hold a password."""
    if isinstance(error, OSError) and error.errno in SHORTAGES:
        return TransientError(f"the model cannot be asked now: {error.strerror}")
    return ModelError(f"the model's provider cannot be asked: {no_environment(type(error).__name__)}")


def _may_pass(error: APIStatusError) -> bool:
    kind = _kind(error)
    if error.status_code < 400:
        return kind is None or kind in RETRIED_TYPES
    return error.status_code >= 500 or error.status_code in RETRIED_STATUSES or kind in RETRIED_TYPES


def _is_too_long(error: APIStatusError) -> bool:
    """Judged by the status, else by the words of the message, because the provider has no type for this error."""
    words = _words(error, "").lower()
    return error.status_code == 413 or any(known in words for known in _TOO_LONG)


def _kind(error: APIStatusError) -> str | None:
    """The error's type, if it is a string; errors of proxies may have any shape."""
    kind: object = error.type
    return kind if isinstance(kind, str) else None


def _message(error: APIStatusError) -> str:
    kind = f" {_kind(error)}" if _kind(error) else ""
    status = f" {error.status_code}" if error.status_code >= 400 else ""
    reason = error.response.reason_phrase if status else "an error inside the stream"
    key = error.request.headers.get("authorization", "").removeprefix("Bearer ")
    told = _without_key(_words(error, reason), key)[:MAX_MESSAGE_CHARS]
    asked = _without_key(error.request_id or "", key)[:MAX_ID_CHARS]
    return f"the model's provider answered{status}{kind}: {told}{f' (request {asked})' if asked else ''}"


def _words(error: APIStatusError, reason: str) -> str:
    """The message in the body. A proxy's body may have any shape; an HTML page says less than its status."""
    if error.api_message:
        return str(error.api_message)
    body = error.body if isinstance(error.body, str) else compact(error.body) if error.body else ""
    return reason if reason and body.lstrip().startswith("<") else body.strip() or reason


def _without_key(text: str, key: str) -> str:
    """The text without the key, which some proxies repeat when they reject it."""
    return text.replace(key, "***") if key else text


def _retry_after_s(error: APIStatusError) -> float | None:
    """Seconds, from ``retry-after-ms``, else from a ``retry-after`` of seconds or a date; ``None`` if neither says."""
    headers = error.response.headers
    wishes = (_number(headers.get("retry-after-ms"), 1_000), _number(headers.get("retry-after"), 1))
    wait_s = next((wish for wish in wishes if wish is not None), _until(headers.get("retry-after")))
    return wait_s if wait_s is not None and 0 <= wait_s < math.inf else None


def _number(text: str | None, in_a_second: int) -> float | None:
    try:
        return float(text or "") / in_a_second
    except ValueError:
        return None


def _until(date: str | None) -> float | None:
    """Seconds from now to an HTTP date (RFC 9110, 5.6.7)."""
    try:
        at = parsedate_to_datetime(date or "")
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() - time.time()
    except (ValueError, OverflowError):
        return None
