"""The codes of the API's errors, and what OpenAI's clients get in addition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

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
