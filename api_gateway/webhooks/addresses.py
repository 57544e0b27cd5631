"""Connections to the public internet alone: addresses are looked at when they are connected to, not before.

A name may stand for another address each time it is asked for (DNS rebinding), so only what is connected to counts.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
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
from api_gateway.webhooks.rules import IN_FLIGHT

CONNECT_TIMEOUT_S: Final = 5.0
"""For each address of a host."""

RESOLVERS: Final = IN_FLIGHT
"""Threads of their own: a name server that hangs holds up nothing else of the process, and no other name."""


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
        self._resolvers = ThreadPoolExecutor(RESOLVERS, thread_name_prefix="resolve")

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

    def close(self) -> None:
        """Let the resolving threads go."""
        self._resolvers.shutdown(wait=False, cancel_futures=True)

    async def _open_addresses(self, host: str, port: int) -> list[str]:
        found = await self._resolved(host, port)
        opened = [address for address in found if self._allow_private or is_public(address)]
        if not opened:
            raise NoAddress("the host's address is not a public one")
        return opened

    async def _resolved(self, host: str, port: int) -> list[str]:
        loop = asyncio.get_running_loop()
        try:
            found = await loop.run_in_executor(self._resolvers, _look_up, host, port)
        except (OSError, UnicodeError):
            raise NoAddress("the host's name is not known") from None
        return list(dict.fromkeys(found))


def _look_up(host: str, port: int) -> list[str]:
    return [str(address[0]) for *_, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
