"""Places that requests wait for: so many for each tenant, so that one cannot keep all others waiting."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final

from api_gateway.database import POOL_TIMEOUT_S
from api_gateway.problems import Problem

READ_AT_ONCE: Final = 8
"""Bodies of one tenant. All tenants together have no limit: a few that send slowly would keep out all others."""

PARSED_AT_ONCE: Final = 2
"""Bodies in all. Python runs one thread at a time: more would only hold up the event loop."""

SCANS_AT_ONCE: Final = 1
"""Queries of one tenant that may have to read all its turns; each takes a connection for as long as it lasts."""

BODY_PATIENCE_S: Final = 30.0
"""How long a body waits for its place before it is refused."""


class TenantPlaces:
    """The places of each tenant. A request that waits too long for one is refused: its client has probably left.

    Args:
        number: How many places each tenant has.
        patience_s: How long a request waits for one, in seconds.
        refusal: What its client is then told.
        closes: Whether a refusal ends the connection.
    """

    def __init__(self, number: int, *, patience_s: float, refusal: str, closes: bool = False) -> None:
        self._places = defaultdict[str, asyncio.Semaphore](lambda: asyncio.Semaphore(number))
        self._patience_s = patience_s
        self._refusal = refusal
        self._headers = {"Retry-After": "5", **({"Connection": "close"} if closes else {})}

    @asynccontextmanager
    async def held(self, tenant: str) -> AsyncGenerator[None]:
        """Hold one of the tenant's places.

        Raises:
            Problem: 503 ``not_ready``: no place became free in time.
        """
        places = self._places[tenant]
        try:
            async with asyncio.timeout(self._patience_s):
                await places.acquire()
        except TimeoutError:
            raise Problem("not_ready", self._refusal, headers=self._headers) from None
        try:
            yield
        finally:
            places.release()


def scan_places(patience_s: float = POOL_TIMEOUT_S) -> TenantPlaces:
    """The places for queries that may have to read all turns of a tenant; they wait as long as for a connection."""
    refusal = "too many lists and reports that read many turns of this tenant are asked for at once: try again later"
    return TenantPlaces(SCANS_AT_ONCE, patience_s=patience_s, refusal=refusal)


class BodyPlaces:
    """The places for long bodies. A body that waits for one is not read meanwhile: it stays on its client's side.

    Args:
        patience_s: How long a body waits for its place, in seconds.
    """

    def __init__(self, patience_s: float = BODY_PATIENCE_S) -> None:
        refusal = "too many long bodies of this tenant are being sent at once: try again in a few seconds"
        self._reading = TenantPlaces(READ_AT_ONCE, patience_s=patience_s, refusal=refusal, closes=True)
        self._parsing = asyncio.Semaphore(PARSED_AT_ONCE)

    def reading(self, tenant: str) -> AbstractAsyncContextManager[None]:
        """Hold a place for a body of the tenant while it is read and parsed; 503 ``not_ready`` if none becomes free."""
        return self._reading.held(tenant)

    def parsing(self) -> AbstractAsyncContextManager[None]:
        """Hold one of the few places to parse a body; a body that has a place to read waits as long as it takes."""
        return self._parsing
