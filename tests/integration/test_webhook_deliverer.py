"""What the deliverer of webhooks asks the database, on each kind of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeAlias

import pytest
from sqlalchemy import event, insert
from sqlalchemy.ext.asyncio import AsyncEngine

from api_gateway.database import create_engine
from api_gateway.webhooks.deliverer import READ_S, Deliverer
from api_gateway.webhooks.outbox import LEASE_S, Claim, Outbox, WebhookEvent
from api_gateway.webhooks.rules import IN_FLIGHT_A_HOST, DueDelivery, Full, ReceiverAnswer, Verdict
from api_gateway.webhooks.sender import READ_TIMEOUT_S, TIMEOUT_S, Sender
from api_gateway.webhooks.signing import Signer
from harness_worker.schema import webhooks
from harness_worker.testing.waiting import wait_until
from tests.integration.gateway_kit import NOWHERE, Gateway, engines_of
from tests.receiver import SECRET, Receiver

Story: TypeAlias = Callable[[Deliverer], Awaitable[None]]

pytestmark = pytest.mark.gateway(redis_url=NOWHERE)


def ended(gateway: Gateway, url: str, host: str) -> str:
    """A turn that has ended, with a webhook of which no live event told."""
    turn_id: str = gateway.posted()["id"]
    row = {"url": url, "host": host, "told_seq": 1, "seq": 1, "attempt": 0, "failures": 0, "due_at": 1.0}
    with gateway.worker.engine.begin() as connection:
        connection.execute(insert(webhooks).values({"turn_id": turn_id, **row}))
    gateway.worker.finish(turn_id, live=False)
    return turn_id


def deliver(
    gateway: Gateway, asked: list[str], story: Story, make_outbox: Callable[[AsyncEngine], Outbox] = Outbox
) -> None:
    """Run a deliverer during ``story``; the values of its statements are appended to ``asked``."""

    async def run() -> None:
        engine = create_engine(gateway.settings.database_url)
        for each in engines_of(engine):
            event.listen(each, "before_cursor_execute", lambda *told: asked.append(str(told[3])))
        deliverer = Deliverer(make_outbox(engine), Signer([SECRET]), Sender(allow_private=True, timeout_s=600.0))
        async with deliverer.running():
            await story(deliverer)
        await engine.dispose()

    asyncio.run(run())


async def received(other: Receiver, count: int) -> None:
    """Wait for so many requests while the deliverer runs."""
    await asyncio.to_thread(other.await_count, count)


def test_what_waits_for_room_is_not_asked_about_until_there_is_some(
    gateway: Gateway, other: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much is delivered to others meanwhile; then it is sent at once, without another reading of all rows."""
    monkeypatch.setattr("api_gateway.webhooks.deliverer.POLL_S", 600.0)
    monkeypatch.setattr("api_gateway.webhooks.deliverer.LONGEST_PAUSE_S", 600.0)
    other.answers.extend([other.hang] * IN_FLIGHT_A_HOST)
    stuck = [ended(gateway, other.named_url, "localhost") for _ in range(IN_FLIGHT_A_HOST + 4)]
    asked: list[str] = []

    async def story(deliverer: Deliverer) -> None:
        await received(other, IN_FLIGHT_A_HOST)
        asked.clear()
        for number in range(1, 6):
            deliverer.poke(await asyncio.to_thread(ended, gateway, other.url, "127.0.0.1"))
            await received(other, IN_FLIGHT_A_HOST + number)
        assert not [values for values in asked if any(turn_id in values for turn_id in stuck)]
        other.released.set()
        await received(other, len(stuck) + 5)

    deliver(gateway, asked, story)
    assert {told.id.partition("_")[0] for told in other.received} >= set(stuck)


@pytest.mark.one_database("sqlite")
def test_delivery_goes_on_though_it_fails_and_that_cannot_be_told(
    gateway: Gateway, other: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is too short even for the line in the log; what is due is found by the next look."""
    monkeypatch.setattr("api_gateway.webhooks.deliverer.POLL_S", 0.05)
    short: list[Exception] = [MemoryError(), MemoryError()]

    class ShortOfMemory(Outbox):
        async def due(self, limit: int, full: Full) -> list[DueDelivery]:
            if short:
                raise short[0]
            return await super().due(limit, full)

    def unable(_: logging.LogRecord) -> bool:
        raise short.pop()

    logger = logging.getLogger("api_gateway.webhooks.deliverer")
    logger.setLevel(logging.DEBUG)
    logger.addFilter(unable)
    try:
        ended(gateway, other.url, "127.0.0.1")
        deliver(gateway, [], lambda _: received(other, 1), ShortOfMemory)
    finally:
        logger.removeFilter(unable)
        logger.setLevel(logging.NOTSET)


@pytest.mark.one_database("sqlite")
def test_delivery_goes_on_though_memory_is_short_for_a_while(
    gateway: Gateway, other: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is too short in a look, and again wherever its error is met."""
    monkeypatch.setattr("api_gateway.webhooks.deliverer.POLL_S", 0.05)
    left = [MemoryError()] * 3

    def short(*errors: type[BaseException]) -> suppress:
        if left:
            raise left.pop()
        return suppress(*errors)

    monkeypatch.setattr("api_gateway.webhooks.deliverer.suppress", short)

    async def story(deliverer: Deliverer) -> None:
        while left:
            deliverer.poke("none")
            await asyncio.sleep(0.01)
        deliverer.poke(await asyncio.to_thread(ended, gateway, other.url, "127.0.0.1"))
        await received(other, 1)

    deliver(gateway, [], story)


@pytest.mark.one_database("sqlite")
def test_each_outage_is_told_once_and_delays_nothing_that_follows(
    gateway: Gateway, other: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The pauses between looks grow with what a look finds, and not with how long the database did not answer."""
    monkeypatch.setattr("api_gateway.webhooks.deliverer.POLL_S", 0.05)
    outages = ["first", "first", "", "second"]

    class Away(Outbox):
        async def due(self, limit: int, full: Full) -> list[DueDelivery]:
            outage = outages.pop(0) if outages else ""
            monkeypatch.setattr("api_gateway.webhooks.deliverer.POLLING_SHARE", 0.0001 if outage else 1.0)
            if outage:
                await asyncio.sleep(0.1)
                raise OSError(outage)
            return await super().due(limit, full) if not outages else []

    ended(gateway, other.url, "127.0.0.1")
    deliver(gateway, [], lambda _: received(other, 1), Away)
    told = [record.message for record in caplog.records if record.message.startswith("webhooks wait")]
    assert told == ["webhooks wait: first", "webhooks wait: second"]


@pytest.mark.one_database("sqlite")
def test_attempt_whose_event_is_read_too_slowly_is_not_made(
    gateway: Gateway, other: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The lease might end during the attempt, and another gateway then deliver a newer event before it."""
    monkeypatch.setattr("api_gateway.webhooks.deliverer.READ_S", 0.05)

    class Slow(Outbox):
        async def event(self, claim: Claim) -> WebhookEvent | None:
            await asyncio.Event().wait()
            return await super().event(claim)

    async def story(_: Deliverer) -> None:
        told = "will be delivered again later: no answer within 0.05 s"
        await asyncio.to_thread(wait_until, lambda: told in caplog.text, "the attempt to be given up")

    ended(gateway, other.url, "127.0.0.1")
    deliver(gateway, [], story, Slow)
    assert other.received == []


def test_lease_is_longer_than_an_attempt() -> None:
    """From the claim to the end of the answer, with time left to record it."""
    assert LEASE_S > READ_S + TIMEOUT_S + READ_TIMEOUT_S


@pytest.mark.one_database("sqlite")
def test_attempt_under_way_ends_when_the_process_stops(
    gateway: Gateway, other: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The receiver's answer is awaited for a moment and recorded, so that no other gateway sends the event again."""
    monkeypatch.setattr("api_gateway.webhooks.deliverer.DRAIN_S", 60.0)
    other.answers.append(other.hang)
    turn_id = ended(gateway, other.url, "127.0.0.1")

    async def story(_: Deliverer) -> None:
        await received(other, 1)
        asyncio.get_running_loop().call_later(0.3, other.released.set)

    deliver(gateway, [], story)
    webhook = gateway.http.get(f"/v1/turns/{turn_id}/webhook").json()
    assert webhook["last_attempt_at"] is not None


@pytest.mark.one_database("sqlite")
def test_attempt_that_was_overtaken_is_not_counted(gateway: Gateway, other: Receiver) -> None:
    """The gateway that overtook it counts its own; else the counters would show more than there was to deliver."""
    deliverers: list[Deliverer] = []

    class Overtaken(Outbox):
        async def record(self, claim: Claim, event: WebhookEvent, answer: ReceiverAnswer, verdict: Verdict) -> bool:
            assert await super().record(claim, event, answer, verdict), "what the other gateway records"
            return await super().record(claim, event, answer, verdict)

    async def story(deliverer: Deliverer) -> None:
        deliverers.append(deliverer)
        await received(other, 1)

    ended(gateway, other.url, "127.0.0.1")
    deliver(gateway, [], story, Overtaken)
    assert not deliverers[0].outcomes


@pytest.mark.one_database("sqlite")
def test_an_attempt_that_could_not_start_takes_no_place(
    gateway: Gateway, other: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory was too short as often as one host has places; later its turns are delivered all the same."""
    start: Callable[..., asyncio.Task[Any]] = asyncio.create_task
    refused = asyncio.Semaphore(0)
    left = [MemoryError()] * IN_FLIGHT_A_HOST

    def short(work: Coroutine[Any, Any, None], *, name: str | None = None, **more: Any) -> asyncio.Task[Any]:  # noqa: ANN401
        if (name or "").startswith("webhook ") and left:
            work.close()
            refused.release()
            raise left.pop()
        return start(work, name=name, **more)

    monkeypatch.setattr(asyncio, "create_task", short)

    async def story(deliverer: Deliverer) -> None:
        for _ in range(IN_FLIGHT_A_HOST):
            deliverer.poke(await asyncio.to_thread(ended, gateway, other.url, "127.0.0.1"))
            await refused.acquire()
        last = await asyncio.to_thread(ended, gateway, other.url, "127.0.0.1")
        deliverer.poke(last)
        await received(other, 1)
        assert other.received[0].id.startswith(last)

    deliver(gateway, [], story)


def test_deliverer_that_an_error_ends_begins_again(
    gateway: Gateway, other: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if the error cannot be logged; the gateway goes on serving, and nobody else might deliver."""
    struck: list[str] = []

    def fail(_deliverer: Deliverer, error: Exception) -> None:
        struck.append(str(error))
        if len(struck) == 2:
            monkeypatch.undo()
        raise RuntimeError("a bug")

    def refuse(_deliverer: Deliverer) -> Coroutine[Any, Any, None]:
        raise RuntimeError("the first")

    ended(gateway, other.url, "127.0.0.1")
    monkeypatch.setattr(Deliverer, "_tell", fail)
    monkeypatch.setattr(Deliverer, "_poll", refuse)

    async def story(_: Deliverer) -> None:
        await received(other, 1)

    deliver(gateway, [], story)
    assert struck == ["the first"] * 2
