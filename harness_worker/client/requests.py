"""What requests are made of: bodies, queries and headers; and lists, page by page."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from harness_worker.errors import ConfigError
from harness_worker.wire import JsonObject

PAGE: Final = 200
LONGEST_KEY: Final = 255


def every(page: Callable[..., JsonObject], **filters: Any) -> Iterator[JsonObject]:  # noqa: ANN401 - as a page takes
    """The items of all pages of a list. A page may have fewer than its ``limit`` and not be the last."""
    filters = {"limit": PAGE, **filters}
    found = page(**filters)
    yield from found["data"]
    while found["next"]:
        found = page(**{**filters, "after": found["next"]})
        yield from found["data"]


def query_of(given: Mapping[str, Any]) -> JsonObject:
    """The parameters of a request, of which ``metadata`` may be a mapping; ``None`` counts as left out."""
    metadata: Mapping[str, str] = given.get("metadata") or {}
    named = {f"metadata.{name}": value for name, value in metadata.items()}
    return {**body_with({**given, "metadata": None}), **named}


def body_with(given: Mapping[str, Any]) -> JsonObject:
    """The members of a body; ``None`` counts as left out."""
    return {name: value for name, value in given.items() if value is not None}


def posting_headers(idempotency_key: str | None, wait_s: float = 0.0, traceparent: str | None = None) -> dict[str, str]:
    """The headers of a post that may be repeated: without a key it gets one.

    Raises:
        ConfigError: ``idempotency_key`` or ``traceparent`` is none that a header can hold.
    """
    key = secrets.token_hex(16) if idempotency_key is None else idempotency_key
    for name, value in body_with({"idempotency_key": key, "traceparent": traceparent}).items():
        if not is_key(value):
            raise ConfigError(f"{name}: give 1 to {LONGEST_KEY} characters of ASCII without spaces around them")
    prefer = f"wait={wait_s:g}" if wait_s else None
    return body_with({"Idempotency-Key": key, "Prefer": prefer, "traceparent": traceparent})


def is_key(text: str) -> bool:
    """Whether an ``Idempotency-Key`` can be this."""
    return text.isascii() and text.isprintable() and text == text.strip() and 1 <= len(text) <= LONGEST_KEY
