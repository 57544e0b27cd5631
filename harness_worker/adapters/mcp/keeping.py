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
from collections.abc import Awaitable, Callable, Generator, Iterable
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TextIO, TypeVar

import anyio
from mcp import Client
from mcp.shared.exceptions import MCPError

from harness_worker.adapters.mcp.endpoints import Mode, Place
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
        place: The server.
        mode: How to agree on the protocol's version.
        connect_timeout_s: How long opening a connection may take, in seconds.
    """

    def __init__(self, place: Place, *, mode: Mode, connect_timeout_s: float) -> None:
        self._place = place
        self._mode: Mode = mode
        self._connect_timeout_s = connect_timeout_s
        self._lock = threading.Lock()
        self._of: tuple[int, asyncio.AbstractEventLoop] | None = None
        self._connection: _Connection | None = None
        self._ending: set[_Connection] = set()

    @property
    def is_open(self) -> bool:
        """Whether there is a connection that accepts calls."""
        connection = self._connection
        return connection is not None and not connection.is_left

    def ask(self, request: Callable[[Client], Awaitable[T]], exchange: Exchange, *, within_s: float) -> T:
        """Run ``request`` on a connection's client; if interrupted, it is cancelled on the server, too.

        Raises:
            Unreached: There is no connection, and nothing was sent.
            TimeoutError: It took longer than ``within_s`` seconds.
        """
        loop = self._loop()
        answer = asyncio.run_coroutine_threadsafe(self._ask(request, exchange, within_s), loop)
        try:
            return answer.result(within_s)
        except BaseException:
            answer.cancel()
            raise

    def close(self) -> None:
        """Close this process's connection, if any, once the calls on it have ended; a later call opens another."""
        with self._lock:
            (of, self._of), ending = (self._of, None), self._ending
        if of is not None and of[0] == os.getpid():
            left = asyncio.run_coroutine_threadsafe(_leave(ending), of[1])
            with contextlib.suppress(TimeoutError):
                left.result(_LEAVING_S)

    def _loop(self) -> asyncio.AbstractEventLoop:
        """This process's event loop; made again after a fork, which does not copy threads."""
        with self._lock:
            if self._of is None or self._of[0] != os.getpid():
                loop = asyncio.new_event_loop()
                thread = threading.Thread(target=_run, args=(loop,), name=f"mcp-{self._place.name}", daemon=True)
                try:
                    thread.start()
                except RuntimeError as refused:
                    loop.close()
                    raise Unreached(f"{self._place.name} was not reached: {refused}") from None
                self._connection, self._ending = None, set()
                self._of = (os.getpid(), loop)
            return self._of[1]

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
        if self._connection is None or self._connection.is_left:
            self._connection = _Connection(self._place, self._mode, self._connect_timeout_s)
            self._ending.add(self._connection)
            self._connection.held.add_done_callback(partial(_forget, self._ending, self._connection))
        return self._connection


async def _leave(connections: Iterable[_Connection]) -> None:
    """Leave the connections, then stop the loop."""
    held = [connection.held for connection in connections]
    for connection in tuple(connections):
        connection.leave()
    await asyncio.gather(*held)
    loop = asyncio.get_running_loop()
    loop.call_later(_STOP_S, loop.stop)


def _forget(connections: set[_Connection], connection: _Connection, _: object) -> None:
    connections.discard(connection)


class _Connection:
    """One connection; used only on the loop's thread."""

    def __init__(self, place: Place, mode: Mode, timeout_s: float) -> None:
        self.is_left = False
        self._place = place
        self._calls = 0
        self._idle = asyncio.Event()
        self._opened: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self.held = asyncio.create_task(self._hold(mode, timeout_s))

    async def ask(self, request: Callable[[Client], Awaitable[T]], within_s: float) -> T:
        """See :meth:`KeptConnection.ask`; once a call was given up, the connection accepts no others."""
        self._calls += 1  # before anybody else may leave
        asked = asyncio.create_task(self._asked(request, within_s))
        asked.add_done_callback(self._heard)
        try:
            return await asyncio.shield(asked)
        except asyncio.CancelledError:
            if self._opened.done():
                self.leave()
            asked.cancel()
            raise

    def leave(self) -> None:
        """Accept no more calls, and close when the last one has ended."""
        self.is_left = True
        if self._calls == 0:
            self._idle.set()

    async def _asked(self, request: Callable[[Client], Awaitable[T]], within_s: float) -> T:
        return await request(await self._client(within_s))

    def _heard(self, asked: asyncio.Task[Any]) -> None:
        """Note that a call has ended, and read its error, which nobody else reads if the call was given up."""
        if not asked.cancelled():
            asked.exception()
        self._calls -= 1
        if self.is_left:
            self.leave()

    async def _client(self, within_s: float) -> Client:
        margin_s = min(_OPEN_MARGIN_S, within_s * _OPEN_MARGIN_SHARE)
        try:
            async with asyncio.timeout(within_s - margin_s):
                return await asyncio.shield(self._opened)
        except TimeoutError:
            raise Unreached(f"{self._place.name} was not reached: there is no connection yet") from None

    async def _hold(self, mode: Mode, timeout_s: float) -> None:
        """Open the connection, and close it in the same task, as the SDK requires."""
        exchange = Exchange()
        EXCHANGE.set(exchange)
        try:
            with _stderr() as said, anyio.fail_after(timeout_s) as scope:
                async with self._place.opened(mode=mode, said=said, on_end=self.leave) as client:
                    scope.deadline = math.inf
                    self._opened.set_result(client)
                    await self._idle.wait()
        except Exception as error:  # noqa: BLE001 - never raises: told to the calls that wait for it
            self._failed(reason_of(error, exchange, within_s=timeout_s))
        finally:
            self.leave()

    def _failed(self, why: str) -> None:
        log.warning("%s: no connection: %s", self._place, why)
        if self._opened.done():
            return
        self._opened.set_exception(Unreached(f"{self._place.name} was not reached: {without_paths(why)}"))
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
