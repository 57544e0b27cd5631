"""Keeps connections open between calls, separately in each process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TextIO, TypeVar

import anyio
from mcp import Client
from mcp.shared.exceptions import MCPError

from harness_worker.adapters.mcp.endpoints import Endpoint, Mode
from harness_worker.adapters.mcp.exchanges import EXCHANGE, Exchange
from harness_worker.adapters.mcp.reasons import reason_of
from harness_worker.core.tool_results import without_paths

T = TypeVar("T")

log = logging.getLogger(__name__)

_SESSION_OVER: Final = 404
"""The status of a server that no longer knows the session, such as after its restart; it has done nothing."""

_LEAVING_S: Final = 10.0
"""How long closing waits, in seconds; a server that still runs afterwards is killed with this process."""

_STOP_S: Final = 0.05
"""How long a loop runs on, in seconds, so that the SDK can reap what it started and notify whoever waits."""

_OPEN_MARGIN_S: Final = 0.5
_OPEN_MARGIN_SHARE: Final = 0.1
"""How long before its end, and at most this share of its time, a call stops waiting for a connection, so that it can
still report in time that the server was not asked."""


class Unreached(Exception):  # noqa: N818 - reads as what it says
    """No connection could be opened, so that nothing was sent."""


class KeptConnection:
    """This process's connection to a server, opened when first needed and again after it broke.

    A call that is given up ends its connection, because a server that did not answer in time may never answer again.
    Other calls on that connection finish first.

    Args:
        endpoint: The server.
        mode: How to agree on the protocol's version.
        connect_timeout_s: How long opening a connection may take, in seconds.
    """

    def __init__(self, endpoint: Endpoint, *, mode: Mode, connect_timeout_s: float) -> None:
        self._make_home = partial(_Home, endpoint, mode, connect_timeout_s)
        self._name = endpoint.name
        self._lock = threading.RLock()  # which none but its holder can release
        self._home: _Home | None = None

    @property
    def is_open(self) -> bool:
        """Whether there is a connection that accepts calls."""
        connection = self._home and self._home.connection
        return connection is not None and not connection.is_left

    def ask(self, request: Callable[[Client], Awaitable[T]], exchange: Exchange, *, within_s: float) -> T:
        """Run ``request`` on a connection's client; if interrupted, it is cancelled on the server, too.

        Raises:
            Unreached: There is no connection, and nothing was sent.
            TimeoutError: It took longer than ``within_s`` seconds.
        """
        answer: Future[T] = Future()  # made before anything is sent, so that an interruption at any moment cancels it
        try:
            with self._lock:  # a loop is left only after what was handed to it
                self._running_home().hand_over(answer, request, exchange, within_s)
            return answer.result(within_s)
        except BaseException:
            self._let_go()
            answer.cancel()
            raise

    def close(self) -> None:
        """Close this process's connection, if any, once the calls on it have ended; a later call opens another."""
        try:
            with self._lock:
                home, self._home = self._home, None
                if home is None or not home.thread.is_alive():
                    return
                left = asyncio.run_coroutine_threadsafe(home.leave(), home.loop)
        except BaseException:
            self._let_go()
            raise
        with contextlib.suppress(TimeoutError):
            left.result(_LEAVING_S)

    def _let_go(self) -> None:
        """Release the lock after an error, which may have come just before its release."""
        with contextlib.suppress(RuntimeError):  # this thread does not hold it
            self._lock.release()

    def _running_home(self) -> _Home:
        """This process's event loop and connections; made again after a fork, which does not copy threads."""
        if self._home is None or not self._home.thread.is_alive():
            try:
                self._home = self._make_home()
                self._home.start()
            except (RuntimeError, OSError, MemoryError) as refused:
                why = str(refused) or type(refused).__name__
                raise Unreached(f"{self._name} was not reached: {why}") from None
        return self._home


class _Home:
    """An event loop on a thread of its own, and the connections that are used on that thread."""

    def __init__(self, endpoint: Endpoint, mode: Mode, connect_timeout_s: float) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=_run, args=(self.loop,), name=f"mcp-{endpoint.name}", daemon=True)
        self._connections: list[_Connection] = []
        self._connect = partial(_Connection, endpoint, mode, connect_timeout_s)

    @property
    def connection(self) -> _Connection | None:
        """The latest connection, if any."""
        return self._connections[-1] if self._connections else None

    def start(self) -> None:
        """Start the thread; if the system refuses it, close the loop."""
        try:
            self.thread.start()
        except (RuntimeError, MemoryError):
            self.loop.close()
            raise

    def hand_over(
        self, answer: Future[T], request: Callable[[Client], Awaitable[T]], exchange: Exchange, within_s: float
    ) -> None:
        """Make the request, from any thread. Its result goes to ``answer``; cancelling that cancels the request."""

        def begin() -> None:
            if not answer.cancelled():
                asked = self.loop.create_task(self._ask(request, exchange, within_s))
                asked.add_done_callback(partial(_tell, answer))
                answer.add_done_callback(partial(self._cancel, asked))

        self.loop.call_soon_threadsafe(begin)

    async def leave(self) -> None:
        """Leave the connections, then stop the loop."""
        while unended := self._unended():  # a call whose session is over opens another
            for connection in unended:
                connection.leave()
            await asyncio.wait([connection.held for connection in unended])
        self.loop.call_later(_STOP_S, self.loop.stop)

    def _cancel(self, asked: asyncio.Task[T], answer: Future[T]) -> None:
        if answer.cancelled():
            with contextlib.suppress(RuntimeError):  # the loop is closed, because the request has ended
                self.loop.call_soon_threadsafe(asked.cancel)

    async def _ask(self, request: Callable[[Client], Awaitable[T]], exchange: Exchange, within_s: float) -> T:
        EXCHANGE.set(exchange)
        async with asyncio.timeout(within_s):
            connection = self._current()
            try:
                return await connection.ask(request, within_s)
            except MCPError:
                if exchange.status != _SESSION_OVER:
                    raise
            connection.leave()
            exchange.status = None
            return await self._current().ask(request, within_s)

    def _current(self) -> _Connection:
        if self.connection is None or self.connection.is_left:
            self._connections = [*self._unended(), self._connect()]
        return self._connections[-1]

    def _unended(self) -> list[_Connection]:
        return [connection for connection in self._connections if not connection.held.done()]


def _tell(answer: Future[T], asked: asyncio.Task[T]) -> None:
    error = None if asked.cancelled() else asked.exception()
    if not answer.set_running_or_notify_cancel():
        return
    if asked.cancelled() or error is not None:
        answer.set_exception(error or asyncio.CancelledError())
    else:
        answer.set_result(asked.result())


class _Connection:
    """One connection; used only on the loop's thread."""

    def __init__(self, endpoint: Endpoint, mode: Mode, timeout_s: float) -> None:
        self._endpoint = endpoint
        self._calls: set[asyncio.Task[Any]] = set()
        self._left = asyncio.Event()
        self._opened: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self.held = asyncio.create_task(self._hold(mode, timeout_s))

    @property
    def is_left(self) -> bool:
        """Whether it accepts no more calls."""
        return self._left.is_set() or self.held.done()

    async def ask(self, request: Callable[[Client], Awaitable[T]], within_s: float) -> T:
        """See :meth:`KeptConnection.ask`; once a call was given up, the connection accepts no others."""
        asked = asyncio.create_task(self._asked(request, within_s))
        asked.add_done_callback(self._heard)
        self._calls.add(asked)  # before anybody else may leave
        try:
            await asyncio.wait({asked})  # not `asyncio.shield`, which logs errors that come after a call was given up
            return asked.result()
        except asyncio.CancelledError:
            if self._opened.done():
                self.leave()
            asked.cancel()
            raise

    def leave(self) -> None:
        """Accept no more calls, and close when the last one has ended."""
        self._left.set()

    async def _asked(self, request: Callable[[Client], Awaitable[T]], within_s: float) -> T:
        return await request(await self._client(within_s))

    def _heard(self, asked: asyncio.Task[Any]) -> None:
        """Forget a call that has ended, and read its error, which nobody else reads if the call was given up."""
        self._calls.discard(asked)
        if not asked.cancelled():
            asked.exception()

    async def _client(self, within_s: float) -> Client:
        margin_s = min(_OPEN_MARGIN_S, within_s * _OPEN_MARGIN_SHARE)
        first = {self._opened, self.held}
        await asyncio.wait(first, timeout=within_s - margin_s, return_when=asyncio.FIRST_COMPLETED)
        if not self._opened.done():
            raise Unreached(f"{self._endpoint.name} was not reached: there is no connection yet")
        return self._opened.result()

    async def _hold(self, mode: Mode, timeout_s: float) -> None:
        """Open the connection, and close it in the same task, as the SDK requires."""
        exchange = Exchange()
        EXCHANGE.set(exchange)
        try:
            with _stderr() as said, anyio.fail_after(timeout_s) as scope:
                async with self._endpoint.opened(mode=mode, said=said, on_end=self.leave) as client:
                    scope.deadline = math.inf
                    self._opened.set_result(client)
                    await self._left.wait()
                    if self._calls:
                        await asyncio.wait(self._calls)
        except Exception as error:  # noqa: BLE001 - never raises: told to the calls that wait for it
            self._failed(reason_of(error, exchange, within_s=timeout_s))

    def _failed(self, why: str) -> None:
        log.warning("%s: no connection: %s", self._endpoint, why)
        if self._opened.done():
            return
        self._opened.set_exception(Unreached(f"{self._endpoint.name} was not reached: {without_paths(why)}"))
        self._opened.exception()  # read it, as nobody may be waiting for it any more


def _run(loop: asyncio.AbstractEventLoop) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # signals are for the thread that runs the tools
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()


@contextmanager
def _stderr() -> Generator[TextIO]:
    """This process's real standard error; what Celery and Jupyter put in its place is not a file."""
    if sys.__stderr__ is not None:
        with contextlib.suppress(OSError, ValueError):
            sys.__stderr__.fileno()
            yield sys.__stderr__
            return
    with open(os.devnull, "w") as nowhere:
        yield nowhere
