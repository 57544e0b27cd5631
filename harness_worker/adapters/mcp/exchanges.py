"""What became of a request on the wire, which the SDK's own errors do not tell: whether it was sent, and the status."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

import httpx2

NEVER_SENT: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)

_FAILED: Final = 599


@dataclass(slots=True)
class Exchange:
    """One call's requests.

    Attributes:
        status: Of the last answer over HTTP; ``None`` if there was none, or it is not HTTP.
        error: Why there was none.
    """

    status: int | None = None
    error: httpx2.TransportError | None = None

    @property
    def was_sent(self) -> bool:
        """Whether the server may have got it."""
        return not isinstance(self.error, NEVER_SENT)


EXCHANGE: Final[ContextVar[Exchange]] = ContextVar("exchange")
"""The call under way. The SDK posts a request in the context that asked for it."""


class NotingTransport(httpx2.AsyncBaseTransport):
    """Notes how each request of a call fares, and adds the server's headers.

    A request that fails is answered as one that a server failed: as an exception it would end the whole connection,
    with the other calls on it.

    Args:
        inner: What sends.
        headers: Asked for each request.
    """

    def __init__(self, inner: httpx2.AsyncBaseTransport, headers: Callable[[], Mapping[str, str]]) -> None:
        self._inner = inner
        self._headers = headers

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send it."""
        exchange = EXCHANGE.get(Exchange())
        request.headers.update(self._headers())
        try:
            response = await self._inner.handle_async_request(request)
        except httpx2.TransportError as error:
            exchange.status, exchange.error = None, error
            return httpx2.Response(_FAILED, request=request)
        exchange.status, exchange.error = response.status_code, None
        return response

    async def aclose(self) -> None:
        """Close its connections."""
        await self._inner.aclose()
