"""The SDK's errors in our own: worth trying again, or not. Never a key, a header or a whole body in them."""

from __future__ import annotations

from typing import Final

import httpx2
from anthropic import APIConnectionError, APIStatusError, APITimeoutError

from harness_worker.errors import HarnessError, ModelError, TransientError

RETRIED_STATUSES: Final = frozenset({408, 409, 429})
RETRIED_TYPES: Final = frozenset({"overloaded_error", "rate_limit_error", "api_error", "timeout_error"})
MAX_MESSAGE_CHARS: Final = 500


def told_by_status(error: APIStatusError) -> HarnessError:
    """What an answer that is no success means; an ``error`` event inside a stream has status 200."""
    message = _message(error)
    if _may_pass(error):
        return TransientError(message, retry_after_s=_retry_after_s(error))
    return ModelError(message)


def told_by_connection(error: Exception) -> HarnessError:
    """What a connection means that was not made, or broke, or that could not take a header: its words hold the key."""
    if isinstance(error, APITimeoutError):
        return TransientError("the model's provider did not answer in time")
    cause = error.__cause__ if isinstance(error, APIConnectionError) and error.__cause__ else error
    if isinstance(cause, httpx2.LocalProtocolError):
        told = "the model's provider cannot be asked: ANTHROPIC_API_KEY holds characters that no header may hold"
        return ModelError(told)
    return TransientError(f"the connection to the model's provider failed: {cause or type(cause).__name__}")


def _may_pass(error: APIStatusError) -> bool:
    kind = _kind(error)
    if error.status_code < 400:
        return kind is None or kind in RETRIED_TYPES
    return error.status_code >= 500 or error.status_code in RETRIED_STATUSES or kind in RETRIED_TYPES


def _kind(error: APIStatusError) -> str | None:
    """The error's type, where it is a text: a proxy's errors have any shape."""
    kind: object = error.type
    return kind if isinstance(kind, str) else None


def _message(error: APIStatusError) -> str:
    kind = f" {_kind(error)}" if _kind(error) else ""
    status = f" {error.status_code}" if error.status_code >= 400 else ""
    reason = error.response.reason_phrase if status else "an error inside the stream"
    told = str(error.api_message or reason)[:MAX_MESSAGE_CHARS]  # a proxy's may be an object
    return f"the model's provider answered{status}{kind}: {told}"


def _retry_after_s(error: APIStatusError) -> float | None:
    """Seconds, from a ``retry-after`` that gives them; a date in it is not used by this provider."""
    try:
        wait_s = float(error.response.headers.get("retry-after", ""))
    except ValueError:
        return None
    return wait_s if 0 <= wait_s < float("inf") else None
