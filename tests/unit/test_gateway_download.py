"""A download that its client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, MutableMapping
from typing import Any

from api_gateway.streams.download import Download


async def always() -> bool:
    """The key of these downloads is never revoked."""
    return True


def test_read_that_is_under_way_when_the_client_leaves_can_end() -> None:
    """It is cancelled once, not at each await anew, so that a driver can close its connection."""

    async def left() -> list[str]:
        reading, told = asyncio.Event(), list[str]()

        async def parts() -> AsyncGenerator[str]:
            yield "first"
            reading.set()
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0.01)
                told.append("closed")

        async def receive() -> MutableMapping[str, Any]:
            await reading.wait()
            return {"type": "http.disconnect"}

        async def send(message: MutableMapping[str, Any]) -> None:
            if message.get("body"):
                told.append(message["body"].decode())

        download = Download(parts(), always, media_type="text/plain")
        await download({"type": "http", "path": "/v1/results"}, receive, send)
        return told

    assert asyncio.run(left()) == ["first", "closed"]
