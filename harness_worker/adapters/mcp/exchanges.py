"""Records whether a request was sent, and the status of its answer, which the SDK's own errors do not tell."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

import httpx2

_NEVER_SENT: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)
_FAILED: Final = 599
_OF_THE_BYTES: Final = ("content-encoding", "content-length", "transfer-encoding")

MOST_BYTES: Final = 64 * 1024 * 1024
"""The maximum size of an answer over HTTP, or of one event in it, in bytes after decompression."""


class AnswerTooLong(Exception):  # noqa: N818 - reads as what it says
    """A server's answer is longer than :data:`MOST_BYTES`."""


@dataclass(slots=True)
class Exchange:
    """What is known about the HTTP requests of one call.

    Attributes:
        status: The status of the last request's answer; ``None`` if there was no answer.
        error: Why there was none.
        was_sent: Whether the server may have received that request.
    """

    status: int | None = None
    error: Exception | None = None
    was_sent: bool = True


EXCHANGE: Final[ContextVar[Exchange]] = ContextVar("exchange")
"""The exchange of the current call. The SDK sends a request in the context of whoever made it."""


class NotingClient(httpx2.AsyncClient):
    """Records the status or error of each request of a call, and adds the server's headers.

    A request that fails gets a made-up answer of a failed server, because an exception would end the whole connection
    with the other calls on it. So does one whose answer is too long; the SDK limits only answers that come as events.

    Args:
        headers_now: Called for the headers of each request.
        timeout: The time limit of each step of a request.
    """

    def __init__(self, headers_now: Callable[[], Mapping[str, str]], *, timeout: httpx2.Timeout) -> None:
        super().__init__(timeout=timeout)
        self._headers_now = headers_now

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:  # noqa: ANN401 - the base class's
        """Send a request and record its status or error."""
        exchange = EXCHANGE.get(Exchange())
        exchange.status, exchange.error, exchange.was_sent = None, None, False
        try:
            request.headers.update(self._headers_now())
            exchange.was_sent = True
            response = await super().send(request, **options)
            exchange.status = response.status_code
            return await _read(response) if _is_json(response) else response
        except Exception as error:  # noqa: BLE001 - kept in the exchange; the headers come from the application's code
            exchange.error, exchange.was_sent = error, exchange.was_sent and not isinstance(error, _NEVER_SENT)
            return httpx2.Response(_FAILED, request=request)


def _is_json(response: httpx2.Response) -> bool:
    return response.headers.get("content-type", "").lower().startswith("application/json")


async def _read(response: httpx2.Response) -> httpx2.Response:
    """The response, read completely.

    Raises:
        AnswerTooLong: It is longer than :data:`MOST_BYTES`.
        httpx2.TransportError: The rest of it did not arrive.
    """
    content = bytearray()
    try:
        async for part in response.aiter_bytes():
            content += part
            if len(content) > MOST_BYTES:
                raise AnswerTooLong(f"its answer is longer than {MOST_BYTES} bytes")
    finally:
        await response.aclose()
    headers = [(name, value) for name, value in response.headers.multi_items() if name.lower() not in _OF_THE_BYTES]
    return httpx2.Response(response.status_code, headers=headers, content=bytes(content), request=response.request)
