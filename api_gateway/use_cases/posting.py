"""``POST /v1/turns``: store, wake, wait, answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from sqlalchemy.exc import SQLAlchemyError

from api_gateway.concurrency.patience import answered_within
from api_gateway.limits.spending import Allowance
from api_gateway.problems import invalid_at
from api_gateway.requests.turns import TurnRequest
from api_gateway.requests.webhook_urls import is_closed_literal
from api_gateway.services import Services
from api_gateway.turns.answers import Turn
from api_gateway.turns.creation import Created
from api_gateway.turns.forking import Fork
from api_gateway.turns.idempotency import ACCEPTED, FINISHED, Earlier, IdempotencyClaim
from api_gateway.use_cases.turn_lookup import existing_turn
from api_gateway.use_cases.waiting import MOST_LOOK_S, RESTING, Waiter, turn_at_rest


async def post_turn(
    wanted: TurnRequest | Fork, claim: IdempotencyClaim | None, waiter: Waiter, services: Services
) -> tuple[Turn, int]:
    """Make the turn, or find the one that an earlier request with the same key made.

    Once a turn is made, the answer is that turn even if the database then fails: the client must not ask for another.

    Returns:
        The turn and the status code of the answer.

    Raises:
        Problem: 422 ``invalid_request`` (its webhook could never be delivered), and what ``make_turn`` raises.
    """
    check_webhook((wanted.request if isinstance(wanted, Fork) else wanted).webhook, services)
    if claim is not None:
        claim = replace(claim, answers_later=waiter.wait_s > 0)
    created = await make_turn(wanted, claim, services)
    if isinstance(created, Earlier):
        return await waited_for(created.made_id, waiter, services), created.status_code
    turn = created.turn
    try:
        turn = await turn_at_rest(turn, waiter, services, partial(wake, created, services))
    finally:
        status_code = FINISHED if turn.status.is_final else ACCEPTED
        # Also when the client has gone away: the key must stay in flight no longer than necessary.
        if claim is not None and claim.answers_later:
            with suppress(SQLAlchemyError, TimeoutError):
                await answered_within(MOST_LOOK_S, services.creator.answered(claim, status_code))
    return turn, status_code


async def make_turn(
    wanted: TurnRequest | Fork,
    claim: IdempotencyClaim | None,
    services: Services,
    *,
    follows: str | None = None,
    on_commit: Callable[[], None] | None = None,
) -> Created:
    """Make the turn of a post, which counts against its tenant's rate whatever becomes of it.

    Args:
        wanted: The turn to make.
        claim: Its idempotency key.
        services: The tenant's services.
        follows: The turn that must be the last of its session before this one.
        on_commit: Called just before the commit, from when on the turn may have been made.

    Raises:
        Problem: 429 ``rate_limited``, 402 ``budget_exhausted``, and what ``TurnCreator.create`` raises.
    """
    allowance = await admit(1, services)
    return await services.creator.create(wanted, claim, follows=follows, allowance=allowance, on_commit=on_commit)


def check_webhook(url: str | None, services: Services, loc: Sequence[str | int] = ("body", "webhook")) -> None:
    """Refuse a webhook that could never be delivered; ``loc`` is its place in the request.

    Raises:
        Problem: 422 ``invalid_request``; it says what to do.
    """
    if url is None:
        return
    settings = services.shared.settings
    if settings.webhook_secret is None:
        raise invalid_at(
            loc,
            "this gateway delivers no webhooks: its operator must set HARNESS_WEBHOOK_SECRET; leave it out until then",
        )
    if not settings.webhook_private and is_closed_literal(url):
        raise invalid_at(loc, "its host's address is not a public one; give one that is")


async def admit(number: int, services: Services) -> Allowance:
    """Count turns against their tenant's rate, and find out whether its daily budget allows new ones.

    Raises:
        Problem: 429 ``rate_limited``.
    """
    await services.shared.rates.admit(services.tenant, number)
    return await services.shared.spending.allowance(services.tenant)


async def waited_for(turn_id: str, waiter: Waiter, services: Services) -> Turn:
    """The turn of an earlier request; this request waits for its end too, as the earlier one may have broken off."""
    turn = await existing_turn(turn_id, services)
    return turn if turn.status in RESTING else await turn_at_rest(turn, waiter, services)


async def wake(created: Created, services: Services) -> None:
    """Ask for a look at a new turn, unless it waits for turns ahead of it: their ends do that.

    If it interrupts them, workers are told in the background. A turn of an earlier request is left to that request.
    """
    publisher, tenant = services.shared.publisher, services.tenant
    if isinstance(created, Earlier):
        return
    if not created.ahead:
        await publisher.advance(created.turn.id, created.request.queue_priority, tenant, begins=True)
    elif created.request.multitask == "interrupt":
        services.shared.background.start(publisher.interrupt(created.ahead, tenant))  # there may be thousands
