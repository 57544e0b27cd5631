"""``POST /v1/batches`` and the cancel of a batch: store, then answer while the wake-ups are sent."""

from __future__ import annotations

from api_gateway.batches.answers import Batch
from api_gateway.batches.requests import BatchRequest, check_names
from api_gateway.batches.store import Stopping
from api_gateway.problems import Problem
from api_gateway.requests.fields import LONGEST_ID
from api_gateway.services import Services
from api_gateway.turns.idempotency import Earlier, IdempotencyClaim
from api_gateway.use_cases.posting import admit, check_webhook


async def post_batch(request: BatchRequest, claim: IdempotencyClaim | None, services: Services) -> Batch:
    """Make the batch and wake its turns, or find the batch that an earlier request with the same key made.

    Raises:
        Problem: 422 ``invalid_request``, 429 ``rate_limited``, and what ``BatchCreator.create`` raises.
    """
    for place, item in enumerate(request.requests):
        check_webhook(item.params.webhook, services, ["body", "requests", place, "params", "webhook"])
    check_names(request)
    allowance = await admit(len(request.requests), services)
    created = await services.batch_creator.create(request, claim, allowance)
    if isinstance(created, Earlier):
        return await existing_batch(created.made_id, services)
    services.shared.background.start(services.shared.publisher.advance_all(created.ready, services.tenant, begins=True))
    return created.batch


async def ask_batch_to_stop(batch_id: str, services: Services) -> bool:
    """Ask every unfinished turn of a batch to stop; returns whether there was one."""
    asked = await services.batches.request_cancel(batch_id)
    is_going_on = bool(asked.begun or asked.queued)
    if is_going_on:
        services.shared.background.start(_stop(asked, services))
    return is_going_on


async def _stop(asked: Stopping, services: Services) -> None:
    publisher, tenant = services.shared.publisher, services.tenant
    await publisher.interrupt(asked.begun, tenant)
    await publisher.advance_all(asked.queued, tenant, begins=True)


async def existing_batch(batch_id: str, services: Services) -> Batch:
    """The batch with that id.

    Raises:
        Problem: 404 ``not_found``.
    """
    batch = await services.batches.one(batch_id)
    if batch is None:
        raise no_such_batch(batch_id)
    return batch


def no_such_batch(batch_id: str) -> Problem:
    """404 ``not_found`` for a batch."""
    return Problem("not_found", f"there is no batch {batch_id[:LONGEST_ID]!r}")
