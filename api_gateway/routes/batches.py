"""Batches: post many turns, watch them, stop them, fetch their results."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from api_gateway.batches.answers import Batch, BatchPage, BatchResult
from api_gateway.batches.requests import BatchRequest, ResultsQuery
from api_gateway.batches.store import Batches
from api_gateway.problems import UNREACHABLE, invalid_at, trouble_of
from api_gateway.requests.fields import is_id
from api_gateway.requests.queries import PageQuery
from api_gateway.routes.dependencies import NoQueryDep, Posted, ServicesDep, posted_of
from api_gateway.routes.openapi import IDEMPOTENCY_KEY, JSON_LINES, TRACEPARENT, body_schema, lines_of, problems
from api_gateway.streams.download import BrokenOffError, Download
from api_gateway.streams.sse import unbroken
from api_gateway.use_cases.batch_posting import ask_batch_to_stop, existing_batch, no_such_batch, post_batch


async def batch_id_of(batch_id: str) -> str:
    """The batch id in a path; 404 ``not_found`` for one that no database could hold."""
    if not is_id(batch_id):
        raise no_such_batch(batch_id)
    return batch_id


BatchId = Annotated[str, Depends(batch_id_of)]

router = APIRouter(tags=["batches"])


@router.post(
    "/v1/batches",
    status_code=202,
    response_model=Batch,
    responses=problems(402, 404, 408, 409, 413, 429),
    openapi_extra=body_schema(BatchRequest, IDEMPOTENCY_KEY, TRACEPARENT),
)
async def create_batch(
    response: Response,
    services: ServicesDep,
    _query: NoQueryDep,
    posted: Annotated[Posted[BatchRequest], Depends(posted_of(BatchRequest))],
) -> Batch:
    """Enqueue many turns, all or none. ``Idempotency-Key`` makes repeats harmless for a day."""
    batch = await post_batch(posted.value, posted.claim, services)
    response.headers["Location"] = f"/v1/batches/{batch.id}"
    return batch


@router.get("/v1/batches", responses=problems())
async def list_batches(services: ServicesDep, query: Annotated[PageQuery, Query()]) -> BatchPage:
    """Batches, newest first."""
    return await services.batches.page(query)


@router.get("/v1/batches/{batch_id}", responses=problems(404))
async def read_batch(batch_id: BatchId, services: ServicesDep, _query: NoQueryDep) -> Batch:
    """One batch; its turns are at ``/v1/turns?batch_id=``."""
    return await existing_batch(batch_id, services)


@router.post(
    "/v1/batches/{batch_id}/cancel",
    status_code=202,
    responses={200: {"model": Batch, "description": "the batch had already ended; unchanged"}, **problems(404)},
)
async def cancel(batch_id: BatchId, _query: NoQueryDep, response: Response, services: ServicesDep) -> Batch:
    """Ask every unfinished turn to stop. Running turns end within a second; waiting ones never begin."""
    if not await ask_batch_to_stop(batch_id, services):
        response.status_code = 200
    return await existing_batch(batch_id, services)


@router.get(
    "/v1/batches/{batch_id}/results",
    response_class=Response,
    responses={**lines_of(BatchResult), **problems(404)},
)
async def read_results(batch_id: BatchId, services: ServicesDep, query: Annotated[ResultsQuery, Query()]) -> Download:
    """The turns that have ended so far, in the order in which they were posted, a JSON object a line."""
    if not await services.batches.exists(batch_id):
        raise no_such_batch(batch_id)
    if query.after is not None and not await services.batches.has(batch_id, query.after):
        raise invalid_at(["query", "after"], "is not a turn of this batch; pass the `turn.id` of the last line read")
    first = await services.batches.results(batch_id, query.after or "")
    return Download(_lines(services.batches, batch_id, first), services.may_go_on, media_type=JSON_LINES)


async def _lines(batches: Batches, batch_id: str, page: Sequence[BatchResult]) -> AsyncGenerator[str]:
    """The results from this page on, one JSON object a line; each page is read once the previous one was sent."""
    while page:
        for result in page:
            yield f"{unbroken(result.model_dump_json())}\n"
        try:
            page = await batches.results(batch_id, page[-1].turn.id)
        except UNREACHABLE as error:
            raise BrokenOffError(trouble_of(error)) from None
