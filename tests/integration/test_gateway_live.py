"""The gateway's reader of live events, on a real server."""

# ruff: noqa: ANN401 - the Redis client's commands are untyped
from __future__ import annotations

import asyncio
from typing import Any, cast

from redis import Redis

from api_gateway.streams.live import LiveEvents, Wake
from harness_worker.testing.services import valkey_service
from harness_worker.testing.waiting import wait_until

NAME = "harness-gateway"


def test_waiters_look_again_once_the_reader_is_back() -> None:
    """What was told between the old connection and the new one is heard by nobody: SQL has it."""

    def is_reading(server: Any) -> bool:
        return any(client["name"] == NAME and client["cmd"] == "xread" for client in server.client_list())

    async def woken(url: str, server: Any) -> list[object]:
        live = LiveEvents(url)
        with live.watch("t") as feed:
            reading = asyncio.create_task(live.run())
            await asyncio.to_thread(wait_until, lambda: is_reading(server), "the reader")
            while await feed.next(0.2) is not Wake.IDLE:
                pass
            (client,) = (each["id"] for each in server.client_list() if each["name"] == NAME)
            server.client_kill_filter(_id=client)
            found: list[object] = [await feed.next(20.0), await feed.next(20.0)]
            reading.cancel()
            return found

    with valkey_service() as url, cast("Any", Redis).from_url(url) as server:
        assert asyncio.run(woken(url, server)) == [Wake.LOST, Wake.LOST]
