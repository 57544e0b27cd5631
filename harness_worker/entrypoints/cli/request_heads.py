"""HTTP connections that do not wait for ever for a request: uvicorn waits without end for the rest of a head."""

from __future__ import annotations

import asyncio
from typing import ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


class TimedHeads(H11Protocol):
    """Closes a connection whose next request's head is not complete in time, however slowly it comes.

    Attributes:
        head_s: How long a head may take: from the connection's start, or the end of the answer before.
        upload_s: The same where the body before has not been read to its end, as one that was refused by its head.
    """

    head_s: ClassVar[float] = 20.0
    upload_s: ClassVar[float] = 300.0
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The first request may come."""
        super().connection_made(transport)
        self._await_head()

    def on_response_complete(self) -> None:
        """The next request may come, or has come already."""
        self._await_head()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """None will come."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _await_head(self) -> None:
        self._stop_waiting()
        patience_s = self.upload_s if self.conn.their_state is h11.SEND_BODY else self.head_s
        self._timer = self.loop.call_later(patience_s, self._close_after, self.cycle)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _close_after(self, last: object) -> None:
        """Close unless another request has come since that one."""
        if self.cycle is last:
            self.transport.close()
