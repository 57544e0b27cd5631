"""Connections to public addresses only: an address is checked when it is connected to, not before.

A name may resolve to another address each time (DNS rebinding), so only the address that is connected to counts.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import Final

from httpcore2 import (
    SOCKET_OPTION,
    AnyIOBackend,
    AsyncNetworkBackend,
    AsyncNetworkStream,
    ConnectError,
    ConnectTimeout,
)

from api_gateway.requests.webhook_urls import is_public

CONNECT_TIMEOUT_S: Final = 5.0
"""How long connecting to one address of a host may take."""


class NoAddress(Exception):  # noqa: N818 - reads as what it says
    """A host has no address to which a connection is allowed; the message says why, and names no address."""


class NoThread(Exception):  # noqa: N818 - reads as what it says
    """This process could not resolve a name just now, which says nothing about the host."""


class CheckedBackend(AsyncNetworkBackend):
    """Connects to hosts with public addresses; TLS still verifies the host's name.

    Args:
        allow_private: Whether addresses that are not public are allowed too.
    """

    def __init__(self, *, allow_private: bool) -> None:
        self._allow_private = allow_private
        self._backend = AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's own signature
        local_address: str | None = None,
        socket_options: Iterable[SOCKET_OPTION] | None = None,
    ) -> AsyncNetworkStream:
        """Connect to the first allowed address of the host that answers.

        Raises:
            NoAddress: No address of the host is allowed.
            NoThread: The system gives no thread to resolve the host's name with.
            ConnectError: No address answers.
            ConnectTimeout: No address answers in time; its message says in what time.
        """
        limit_s = timeout or CONNECT_TIMEOUT_S
        failed: ConnectError | ConnectTimeout = ConnectError("nobody answers")
        for address in await self._allowed_addresses(host, port):
            try:
                return await self._backend.connect_tcp(address, port, limit_s, local_address, socket_options)
            except ConnectTimeout:
                failed = ConnectTimeout(f"no connection within {limit_s:g} s")
            except ConnectError as error:
                failed = error
        raise failed

    async def _allowed_addresses(self, host: str, port: int) -> list[str]:
        found = await _resolved(host, port)
        allowed = [address for address in found if self._allow_private or is_public(address)]
        if not allowed:
            raise NoAddress("the host's address is not a public one")
        return allowed


async def _resolved(host: str, port: int) -> list[str]:
    """The addresses of a host's name, resolved in a daemon thread of its own.

    So a name server that hangs delays neither another name nor the end of the process, which would join the threads of
    a pool. Each attempt resolves once; its thread may outlast it, for as long as the system tries to resolve a name.
    """
    answer: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
    try:
        Thread(target=_look_up, args=(host, port, answer), name="resolve", daemon=True).start()
    except RuntimeError as refused:
        raise NoThread(str(refused)) from None
    return list(dict.fromkeys(await answer))


def _look_up(host: str, port: int, answer: asyncio.Future[list[str]]) -> None:
    try:
        found = [str(address[0]) for *_, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
        settle = partial(answer.set_result, found)
    except (OSError, ValueError):  # also a name that cannot be encoded
        settle = partial(answer.set_exception, NoAddress("the host's name is not known"))
    except Exception as error:  # noqa: BLE001 - handed over: it is raised where the addresses are awaited
        settle = partial(answer.set_exception, error)
    with suppress(RuntimeError):  # the loop is closed: nobody asks any more
        answer.get_loop().call_soon_threadsafe(_unless_done, answer, settle)


def _unless_done(answer: asyncio.Future[list[str]], settle: Callable[[], None]) -> None:
    if not answer.done():
        settle()
