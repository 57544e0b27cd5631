"""Connections to the public internet alone: addresses are looked at when they are connected to, not before.

A name may stand for another address each time it is asked for (DNS rebinding), so only what is connected to counts.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from contextlib import suppress
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

from api_gateway.webhook_urls import is_public

CONNECT_TIMEOUT_S: Final = 5.0
"""For each address of a host."""


class NoAddress(Exception):  # noqa: N818 - reads as what it says
    """A host without an address that may be called; the message says why, and names none."""


class CheckedBackend(AsyncNetworkBackend):
    """Connects to hosts whose addresses are public; what TLS verifies stays the host's name.

    Args:
        allow_private: Whether other addresses are open too.
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
        """Connect to the first open address of the host that answers.

        Raises:
            NoAddress: It has none that is open.
            ConnectError: None answers.
            ConnectTimeout: None answers in time.
        """
        failed: ConnectError | ConnectTimeout = ConnectError("nobody answers")
        for address in await self._open_addresses(host, port):
            try:
                return await self._backend.connect_tcp(
                    address, port, timeout or CONNECT_TIMEOUT_S, local_address, socket_options
                )
            except (ConnectError, ConnectTimeout) as error:
                failed = error
        raise failed

    async def _open_addresses(self, host: str, port: int) -> list[str]:
        found = await _resolved(host, port)
        opened = [address for address in found if self._allow_private or is_public(address)]
        if not opened:
            raise NoAddress("the host's address is not a public one")
        return opened


async def _resolved(host: str, port: int) -> list[str]:
    """What the host's name stands for, asked in a thread that nobody waits for.

    A name server that hangs holds up no other name, and not the end of the process, which joins a pool's threads. Each
    try asks once, so those that are under way bound the threads.
    """
    answer: asyncio.Future[list[str] | None] = asyncio.get_running_loop().create_future()
    Thread(target=_look_up, args=(host, port, answer), name="resolve", daemon=True).start()
    if (found := await answer) is None:
        raise NoAddress("the host's name is not known")
    return list(dict.fromkeys(found))


def _look_up(host: str, port: int, answer: asyncio.Future[list[str] | None]) -> None:
    found: list[str] | None = None
    with suppress(OSError, ValueError):  # also a name that cannot be encoded
        found = [str(address[0]) for *_, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    with suppress(RuntimeError):  # the loop is closed: nobody asks any more
        answer.get_loop().call_soon_threadsafe(_settle, answer, found)


def _settle(answer: asyncio.Future[list[str] | None], found: list[str] | None) -> None:
    if not answer.done():
        answer.set_result(found)
