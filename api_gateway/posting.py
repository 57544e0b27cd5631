"""The course of one ``POST /v1/turns``: store, wake, wait, answer."""

from __future__ import annotations

import asyncio
from typing import Final

from api_gateway.creation import Created, IdempotencyClaim
from api_gateway.problems import invalid_at
from api_gateway.requests import TurnRequest
from api_gateway.services import Services
from api_gateway.waiting import Client, wait_for_rest

ACCEPTED: Final = 202
FINISHED: Final = 200


async def post_turn(
    request: TurnRequest, claim: IdempotencyClaim | None, client: Client, services: Services
) -> tuple[str, int]:
    """Make the turn, or find the one an earlier request with the same key made.

    Returns:
        The turn's id and the status code of the answer.
    """
    created = await services.creator.create(request, claim)
    if created.replayed is not None:
        return created.turn_id, created.replayed
    status_code = ACCEPTED
    try:
        status_code = await _wake_and_wait(created, request, client, services)
    finally:
        # Also when the client has gone away: the key must not stay in flight.
        if claim is not None and claim.answers_later:
            await services.creator.answered(claim, status_code)
    return created.turn_id, status_code


async def _wake_and_wait(created: Created, request: TurnRequest, client: Client, services: Services) -> int:
    with services.live.watch(created.turn_id) as feed:
        await wake(created, request, services)
        if client.wait_s <= 0:
            return ACCEPTED
        await wait_for_rest(created.turn_id, client, feed, services.live, services.store)
    standing = await services.store.standing(created.turn_id)
    return FINISHED if standing and standing.status.is_final else ACCEPTED


async def wake(created: Created, request: TurnRequest, services: Services) -> None:
    """Have somebody look at the turn; or, if it waits, leave that to the end of those ahead, or bring that about.

    One that an earlier request has made was seen to then.
    """
    if created.replayed is not None:
        return
    if not created.ahead:
        await services.publisher.advance(created.turn_id, request.queue_priority)
    elif request.multitask == "interrupt":
        await asyncio.gather(*(services.publisher.interrupt(*each) for each in created.ahead))


def idempotency_key_of(given: list[str]) -> str | None:
    """The request's ``Idempotency-Key``; ``None`` if there is none.

    Raises:
        Problem: It is empty, longer than 255 characters, or given twice.
    """
    if not given:
        return None
    if len(given) > 1 or not 1 <= len(given[0]) <= 255:
        raise invalid_at(["header", "Idempotency-Key"], "must be given once, with 1 to 255 characters")
    return given[0]
