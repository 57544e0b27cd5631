"""Places for long bodies: how many of one tenant are read at once, and how many are parsed at once in all."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from api_gateway.problems import Problem

READ_AT_ONCE: Final = 8
"""Of one tenant. There is no limit for all tenants together: a few that send slowly would keep out all others."""

PARSED_AT_ONCE: Final = 2
"""Python runs one thread at a time: more would only keep the event loop from its turn."""

PATIENCE_S: Final = 30.0
"""How long a body waits for its place; its client is sent back then."""


class BodyPlaces:
    """The places of one process. A body that waits for one is not read meanwhile: its client's system keeps it.

    Args:
        patience_s: How long it waits, in seconds.
    """

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._reading = defaultdict[str, asyncio.Semaphore](lambda: asyncio.Semaphore(READ_AT_ONCE))
        self._parsing = asyncio.Semaphore(PARSED_AT_ONCE)

    @asynccontextmanager
    async def reading(self, tenant: str) -> AsyncGenerator[None]:
        """Holds a place for a body of the tenant, to read and to parse it.

        Raises:
            Problem: 503 ``not_ready``: none became free in time.
        """
        places = self._reading[tenant]
        try:
            async with asyncio.timeout(self._patience_s):
                await places.acquire()
        except TimeoutError:
            detail = "too many long bodies of this tenant are being sent at once: try again in some seconds"
            raise Problem("not_ready", detail, headers={"Retry-After": "5", "Connection": "close"}) from None
        try:
            yield
        finally:
            places.release()

    @asynccontextmanager
    async def parsing(self) -> AsyncGenerator[None]:
        """Holds one of the few places to parse a body; who has a place to read waits for it as long as it takes."""
        async with self._parsing:
            yield
