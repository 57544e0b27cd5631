"""The course of a batch: it is stored and woken, asked to stop, fetched."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Final

from api_gateway.batches.answers import Batch, BatchResult
from api_gateway.batches.requests import BatchRequest, check_names
from api_gateway.batches.store import Batches, Stopping
from api_gateway.idempotency import IdempotencyClaim
from api_gateway.problems import Problem, invalid_at
from api_gateway.services import Services
from api_gateway.sse import unbroken

LONGEST_ID: Final = 64


def batch_id_of(batch_id: str) -> str:
    """A path's batch id; one that no database could hold is not found."""
    if "\0" in batch_id or len(batch_id) > LONGEST_ID:
        raise no_such_batch(batch_id)
    return batch_id


def no_such_batch(batch_id: str) -> Problem:
    """404 for a batch."""
    return Problem(404, "not_found", f"there is no batch {batch_id[:LONGEST_ID]!r}")


async def existing_batch(batch_id: str, services: Services) -> Batch:
    """The batch as it stands.

    Raises:
        Problem: 404 ``not_found``.
    """
    batch = await services.batches.one(batch_id)
    if batch is None:
        raise no_such_batch(batch_id)
    return batch


async def post_batch(request: BatchRequest, claim: IdempotencyClaim | None, services: Services) -> Batch:
    """Make the batch, or find the one an earlier request with the same key made.

    Raises:
        Problem: 422 ``invalid_request``, 429 ``rate_limited``, 402 ``budget_exhausted``; what ``BatchCreator.create``
            raises.
    """
    check_names(request)
    await services.rates.admit(services.tenant, len(request.requests))
    refusal = await services.spending.refusal(services.tenant)
    created = await services.batch_creator.create(request, claim, refusal)
    if created.batch is None:
        return await existing_batch(created.batch_id, services)
    services.background.start(services.publisher.advance_all(created.ready, services.tenant))
    return created.batch


async def cancel_batch(batch_id: str, services: Services) -> Stopping | None:
    """Ask what is not over of a batch to stop; ``None`` if all of it is over."""
    if not await services.batches.exists(batch_id):
        raise no_such_batch(batch_id)
    asked = await services.batches.request_cancel(batch_id)
    if not asked.begun and not asked.queued:
        return None
    services.background.start(_stop(asked, services))
    return asked


async def _stop(asked: Stopping, services: Services) -> None:
    for each in asked.begun:
        await services.publisher.interrupt(*each, services.tenant)
    await services.publisher.advance_all(asked.queued, services.tenant)


async def first_results(batch_id: str, after: str, services: Services) -> list[BatchResult]:
    """The results behind a turn of the batch; behind ``""``, from the first on.

    Raises:
        Problem: 404 ``not_found``; 422 ``invalid_request``, that is no turn of the batch.
    """
    if not await services.batches.exists(batch_id):
        raise no_such_batch(batch_id)
    if after and not await services.batches.has(batch_id, after):
        raise invalid_at(["query", "after"], "is no turn of this batch; pass the `turn.id` of the last line you read")
    return await services.batches.results(batch_id, after)


async def result_lines(batches: Batches, batch_id: str, page: Sequence[BatchResult]) -> AsyncGenerator[str]:
    """The results from this page on, one JSON object a line; each page is read when the one before it is sent."""
    while page:
        for result in page:
            yield f"{unbroken(result.model_dump_json())}\n"
        page = await batches.results(batch_id, page[-1].turn.id)
