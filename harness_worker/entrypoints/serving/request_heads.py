"""HTTP connections with what uvicorn's lack: a time limit for the head of a request, and an end to a broken body."""

from __future__ import annotations

import asyncio
from typing import ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


class TimedHeads(H11Protocol):
    """Closes a connection whose next request's head is not complete in time, however slowly it comes.

    How long a connection may be idle after an answer is limited by uvicorn's ``timeout_keep_alive``.

    Attributes:
        head_s: How long a head may take: from the connection's start, or from its first byte after an answer.
        upload_s: How long after an answer the next head may take if the body before was not read to its end, such as
            one that was refused because of its head.
    """

    head_s: ClassVar[float] = 20.0
    upload_s: ClassVar[float] = 300.0
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Start the time of the first request; if the connection cannot be served, close it, as nobody else would."""
        try:
            super().connection_made(transport)
            self._await_head(self.head_s)
        except Exception:  # such as a lack of memory
            transport.close()
            raise

    def data_received(self, data: bytes) -> None:
        """Start the time of a head that begins."""
        super().data_received(data)
        self._time_begun_head()

    def on_response_complete(self) -> None:
        """Start the time of the next request, which may already have come, completely or in part."""
        self._stop_waiting()
        if self.conn.their_state is h11.SEND_BODY:
            self._await_head(self.upload_s)
        super().on_response_complete()
        self._time_begun_head()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP and close the connection; a request has one answer, which may have begun."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()
            return
        super().send_400_response(msg)
        if self.cycle is not None:  # pyright: ignore[reportUnnecessaryComparison] - None before the first request
            self.cycle.disconnected = True  # so the application's own answer is dropped

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting: no further request will come."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _should_upgrade(self) -> bool:
        """Go on in HTTP/1.1 with a client that offers another protocol, whichever library is installed for it."""
        return False

    def _time_begun_head(self) -> None:
        if self._timer is None and self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
            self._await_head(self.head_s)

    def _await_head(self, patience_s: float) -> None:
        self._timer = self.loop.call_later(patience_s, self._close_after, self.cycle)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close_after(self, last: object) -> None:
        """Close the connection unless another request has come since ``last``."""
        if self.cycle is last:
            self.transport.close()
