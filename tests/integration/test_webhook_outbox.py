"""The rows of webhooks: which gateway holds one, what is due, and what is written, on each kind of database."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import pytest
from sqlalchemy import insert, select, update

from api_gateway.database import create_engine
from api_gateway.webhooks.outbox import Claim, Outbox, WebhookEvent
from api_gateway.webhooks.rules import DeliveryOutcome, DueDelivery, Full, Lane, ReceiverAnswer, Verdict
from harness_worker.schema import turns, webhooks
from harness_worker.wire import DEFAULT_TENANT
from tests.integration.gateway_kit import NOWHERE, Gateway, gateway_on

GOOD = ReceiverAnswer(status_code=200), Verdict(outcome=DeliveryOutcome.DELIVERED)
BAD = ReceiverAnswer(error="no answer"), Verdict(outcome=DeliveryOutcome.FAILED, retry_in_s=600.0)
ROW = {"url": "http://h/", "host": "h", "told_seq": 1, "seq": 1, "attempt": 0, "failures": 0, "due_at": 1.0}

Story: TypeAlias = Callable[[Outbox], Awaitable[None]]

pytestmark = pytest.mark.gateway(redis_url=NOWHERE)  # so that it delivers nothing: the tests do


@pytest.fixture
def turn_id(gateway: Gateway) -> str:
    """A turn with a webhook."""
    return with_webhook(gateway)


def with_webhook(gateway: Gateway) -> str:
    """The id of a new turn with a webhook."""
    made: str = gateway.posted()["id"]
    with gateway.worker.engine.begin() as connection:
        connection.execute(insert(webhooks).values({"turn_id": made, **ROW}))
    return made


def play(gateway: Gateway, story: Story) -> None:
    """Run these steps on the gateway's database."""

    async def played() -> None:
        engine = create_engine(gateway.settings.database_url)
        try:
            await story(Outbox(engine))
        finally:
            await engine.dispose()

    asyncio.run(played())


def due(turn_id: str) -> DueDelivery:
    """The turn's delivery, if it is found to be due."""
    return DueDelivery(turn_id=turn_id, lane=Lane(tenant=DEFAULT_TENANT, host="h"))


async def claimed(outbox: Outbox, turn_id: str) -> list[Claim]:
    """The claims of the turn's delivery."""
    return await outbox.claim([turn_id])


async def event_of(outbox: Outbox, claim: Claim) -> WebhookEvent:
    """The claimed event."""
    event = await outbox.event(claim)
    assert event is not None
    return event


def status_of(gateway: Gateway, turn_id: str) -> str:
    """The webhook's state, as its client reads it."""
    return gateway.http.get(f"/v1/turns/{turn_id}/webhook").json()["status"]


def test_nothing_is_due_before_something_happens(gateway: Gateway, turn_id: str) -> None:
    """After that it is due, unless its host or tenant has no room, or other turns are asked about."""

    async def story(outbox: Outbox) -> None:
        gateway.worker.event(turn_id, "turn.started", live=False)
        assert (await outbox.due(9, Full()), await claimed(outbox, turn_id)) == ([], [])
        gateway.worker.finish(turn_id, live=False)
        assert await outbox.due(9, Full(hosts=["other"], tenants=["other"])) == [due(turn_id)]
        assert await outbox.due(9, Full(hosts=["h"])) == await outbox.due(9, Full(tenants=[DEFAULT_TENANT])) == []
        assert await outbox.due_of([turn_id, "another"]) == [due(turn_id)]
        assert await outbox.due_of(["another"]) == await claimed(outbox, "another") == []
        assert [claim.seq for claim in await claimed(outbox, turn_id)] == [3]

    play(gateway, story)


def test_who_was_overtaken_writes_nothing(gateway: Gateway, turn_id: str) -> None:
    """A gateway that stalls for longer than its lease cannot record its attempt once another gateway has claimed it."""

    async def story(outbox: Outbox) -> None:
        gateway.worker.finish(turn_id, live=False)
        (first,) = await claimed(outbox, turn_id)
        assert (await outbox.due(9, Full()), await claimed(outbox, turn_id)) == ([], [])
        with gateway.worker.engine.begin() as connection:
            connection.execute(update(webhooks).values(lease_until=1.0))
        (second,) = await claimed(outbox, turn_id)
        assert (first.seq, first.attempt, second.seq, second.attempt) == (2, 1, 2, 2)
        event = await event_of(outbox, second)
        assert not await outbox.record(first, event, *GOOD)
        assert status_of(gateway, turn_id) == "trying"
        assert await outbox.record(second, event, *GOOD)
        assert not await outbox.record(second, event, *GOOD)

    play(gateway, story)
    assert status_of(gateway, turn_id) == "delivered"


def test_who_was_overtaken_by_a_newer_event_writes_nothing(gateway: Gateway, turn_id: str) -> None:
    """Even if both attempts are the first of their events."""

    async def story(outbox: Outbox) -> None:
        gateway.worker.event(turn_id, "turn.requires_action", live=False)
        (first,) = await claimed(outbox, turn_id)
        gateway.worker.finish(turn_id, live=False)
        with gateway.worker.engine.begin() as connection:
            connection.execute(update(webhooks).values(lease_until=1.0))
        (second,) = await claimed(outbox, turn_id)
        assert (first.seq, first.attempt, second.seq, second.attempt) == (2, 1, 3, 1)
        assert not await outbox.record(first, await event_of(outbox, first), *GOOD)
        assert await outbox.record(second, await event_of(outbox, second), *GOOD)

    play(gateway, story)
    assert status_of(gateway, turn_id) == "delivered"


def test_delivery_of_one_turn_is_none_of_anothers(gateway: Gateway, turn_id: str) -> None:
    """What happens to one, and what is written of its attempt, changes nothing for one with the same numbers."""
    another = with_webhook(gateway)

    async def story(outbox: Outbox) -> None:
        gateway.worker.finish(turn_id, live=False)
        assert await outbox.due(9, Full()) == [due(turn_id)]
        gateway.worker.finish(another, live=False)
        with gateway.worker.engine.begin() as connection:
            connection.execute(update(webhooks).where(webhooks.c.turn_id == another).values(due_at=0.5))
        assert await outbox.due(1, Full()) == [due(another)], "the longest due"
        (first,) = await claimed(outbox, turn_id)
        assert await outbox.due(9, Full()) == [due(another)]
        (second,) = await claimed(outbox, another)
        assert (first.seq, first.attempt) == (second.seq, second.attempt)
        assert await outbox.record(first, await event_of(outbox, first), *GOOD)
        assert [status_of(gateway, each) for each in (turn_id, another)] == ["delivered", "trying"]
        assert await outbox.record(second, await event_of(outbox, second), *BAD)

    play(gateway, story)
    assert [status_of(gateway, each) for each in (turn_id, another)] == ["delivered", "trying"]


def test_claim_waits_for_nobody(postgres_url: str, gateway_redis: str) -> None:
    """Another gateway that is claiming the delivery gets it; the turn's own row is its worker's, who may hold it."""
    with gateway_on(postgres_url, gateway_redis, redis_url=NOWHERE) as gateway:
        held = with_webhook(gateway)
        gateway.worker.finish(held, live=False)

        async def story(outbox: Outbox) -> None:
            with gateway.worker.engine.begin() as connection:
                connection.execute(select(webhooks.c.turn_id).where(webhooks.c.turn_id == held).with_for_update())
                assert await claimed(outbox, held) == []
            with gateway.worker.engine.begin() as connection:
                connection.execute(select(turns.c.id).where(turns.c.id == held).with_for_update(key_share=True))
                assert [claim.turn_id for claim in await claimed(outbox, held)] == [held]

        play(gateway, story)


def test_failed_event_waits_for_its_time_and_a_newer_one_does_not(gateway: Gateway, turn_id: str) -> None:
    """The newer event is delivered in its place, with as many attempts."""

    async def story(outbox: Outbox) -> None:
        gateway.worker.event(turn_id, "turn.requires_action", live=False)
        (first,) = await claimed(outbox, turn_id)
        await outbox.record(first, await event_of(outbox, first), *BAD)
        assert (await outbox.due(9, Full()), await claimed(outbox, turn_id)) == ([], [])
        gateway.worker.finish(turn_id, live=False)
        assert await outbox.due(9, Full()) == [due(turn_id)]
        (second,) = await claimed(outbox, turn_id)
        assert (second.seq, second.attempt) == (3, 1)
        await outbox.record(second, await event_of(outbox, second), *BAD)
        assert (await outbox.due(9, Full()), await claimed(outbox, turn_id)) == ([], [])
        with gateway.worker.engine.begin() as connection:
            connection.execute(update(webhooks).values(due_at=1.0))
        (third,) = await claimed(outbox, turn_id)
        assert (third.seq, third.attempt) == (3, 2)

    play(gateway, story)


def test_try_that_died_with_its_gateway_is_no_failure(gateway: Gateway, turn_id: str) -> None:
    """However many gateways die, the receiver gets all its retries; a new event begins with the first."""

    async def story(outbox: Outbox) -> None:
        gateway.worker.event(turn_id, "turn.requires_action", live=False)
        for _ in range(9):
            (claim,) = await claimed(outbox, turn_id)
            with gateway.worker.engine.begin() as connection:
                connection.execute(update(webhooks).values(lease_until=1.0))
        (claim,) = await claimed(outbox, turn_id)
        assert (claim.attempt, claim.failures) == (10, 0)
        await outbox.record(claim, await event_of(outbox, claim), *BAD)
        with gateway.worker.engine.begin() as connection:
            connection.execute(update(webhooks).values(due_at=1.0))
        (again,) = await claimed(outbox, turn_id)
        assert (again.attempt, again.failures) == (11, 1)
        await outbox.record(again, await event_of(outbox, again), *BAD)
        gateway.worker.finish(turn_id, live=False)
        (newer,) = await claimed(outbox, turn_id)
        assert (newer.attempt, newer.failures) == (1, 0)

    play(gateway, story)
