"""The loop that delivers webhooks, without a database."""

from __future__ import annotations

import asyncio
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from api_gateway.webhooks.deliverer import Deliverer
from api_gateway.webhooks.rules import DueDelivery, Full
from tests.unit.strikes import Striker

SOON_S = 20.0
LINES = 60
"""More than a look executes that finds nothing, and the wait for the next one."""


class _NothingDue:
    """Rows of which none is due."""

    def __init__(self) -> None:
        self.looks = asyncio.Semaphore(0)

    async def due(self, limit: int, full: Full) -> list[DueDelivery]:
        """See ``Outbox.due``."""
        del limit, full
        self.looks.release()
        return []


async def _close() -> None:
    """See ``Sender.close``."""


def _deliverer(outbox: _NothingDue) -> Deliverer:
    return Deliverer(cast("Any", outbox), cast("Any", None), cast("Any", SimpleNamespace(close=_close)))


async def _look_again(striker: Striker) -> None:
    """Look until an error strikes, and then so often that whatever it has left behind must have come to pass."""
    outbox = _NothingDue()
    async with _deliverer(outbox).running():
        async with asyncio.timeout(SOON_S):
            while not striker.has_struck:
                await outbox.looks.acquire()
            for _ in range(5):
                await outbox.looks.acquire()


def test_error_at_any_line_of_a_look_is_followed_by_further_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else in the gateway would deliver, and it goes on serving."""
    monkeypatch.setattr("api_gateway.webhooks.deliverer.POLL_S", 0.01)
    monkeypatch.setattr("api_gateway.concurrency.lasting.AGAIN_S", 0.0)
    for at in range(LINES):
        striker = Striker("webhooks/deliverer.py", at)
        striker.run(partial(asyncio.run, _look_again(striker)))
        assert striker.has_struck


def test_poll_that_takes_long_does_not_end_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one comes soon, whatever share of the time it takes: it may be the database that was slow once."""
    monkeypatch.setattr("api_gateway.webhooks.deliverer.POLLING_SHARE", 1e-9)
    monkeypatch.setattr("api_gateway.webhooks.deliverer.LONGEST_PAUSE_S", 0.01)
    outbox = _NothingDue()

    async def look_twice() -> None:
        async with _deliverer(outbox).running(), asyncio.timeout(SOON_S):
            for _ in range(2):
                await outbox.looks.acquire()

    asyncio.run(look_twice())
