"""Places for long bodies, which limit how many of a tenant are read at once, and how many in all are parsed at once."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from api_gateway.problems import Problem

READ_AT_ONCE: Final = 8
"""Bodies of one tenant. All tenants together have no limit: a few that send slowly would keep out all others."""

PARSED_AT_ONCE: Final = 2
"""Bodies in all. Python runs one thread at a time: more would only hold up the event loop."""

PATIENCE_S: Final = 30.0
"""How long a body waits for its place before it is refused."""


class BodyPlaces:
    """The places of one process. A body that waits for one is not read meanwhile: it stays on its client's side.

    Args:
        patience_s: How long a body waits for its place, in seconds.
    """

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._reading = defaultdict[str, asyncio.Semaphore](lambda: asyncio.Semaphore(READ_AT_ONCE))
        self._parsing = asyncio.Semaphore(PARSED_AT_ONCE)

    @asynccontextmanager
    async def reading(self, tenant: str) -> AsyncGenerator[None]:
        """Hold a place for a body of the tenant while it is read and parsed.

        Raises:
            Problem: 503 ``not_ready``: no place became free in time.
        """
        places = self._reading[tenant]
        try:
            async with asyncio.timeout(self._patience_s):
                await places.acquire()
        except TimeoutError:
            detail = "too many long bodies of this tenant are being sent at once: try again in a few seconds"
            raise Problem("not_ready", detail, headers={"Retry-After": "5", "Connection": "close"}) from None
        try:
            yield
        finally:
            places.release()

    @asynccontextmanager
    async def parsing(self) -> AsyncGenerator[None]:
        """Hold one of the few places to parse a body; a body that has a place to read waits as long as it takes."""
        async with self._parsing:
            yield
