"""Batches: post many turns, watch them, stop them, fetch what came of them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import StreamingResponse

from api_gateway.batches.answers import Batch, BatchPage, BatchResult
from api_gateway.batches.requests import BatchesQuery, BatchRequest, ResultsQuery
from api_gateway.batching import (
    batch_id_of,
    cancel_batch,
    existing_batch,
    first_results,
    post_batch,
    result_lines,
)
from api_gateway.body import Body, body_of
from api_gateway.idempotency import IdempotencyClaim
from api_gateway.openapi import IDEMPOTENCY_KEY, JSON_LINES, TRACEPARENT, body_schema, lines_of, problems
from api_gateway.posting import idempotency_key_of
from api_gateway.requests import NoQuery
from api_gateway.services import ServicesDep
from api_gateway.webhooks.acceptance import check_webhook

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
    request: Request,
    response: Response,
    services: ServicesDep,
    _query: Annotated[NoQuery, Query()],
    body: Annotated[Body[BatchRequest], Depends(body_of(BatchRequest))],
) -> Batch:
    """Enqueue many turns, all or none. ``Idempotency-Key`` makes repeats harmless for a day."""
    for place, item in enumerate(body.value.requests):
        check_webhook(item.params.webhook, services.settings, ["body", "requests", place, "params", "webhook"])
    key = idempotency_key_of(request.headers.getlist("idempotency-key"))
    claim = IdempotencyClaim(key=key, digest=body.digest) if key else None
    batch = await post_batch(body.value, claim, services)
    response.headers["Location"] = f"/v1/batches/{batch.id}"
    return batch


@router.get("/v1/batches", responses=problems())
async def list_batches(services: ServicesDep, query: Annotated[BatchesQuery, Query()]) -> BatchPage:
    """Batches, newest first."""
    return await services.batches.page(query)


@router.get("/v1/batches/{batch_id}", responses=problems(404))
async def read_batch(batch_id: BatchId, services: ServicesDep, _query: Annotated[NoQuery, Query()]) -> Batch:
    """One batch; its turns are at ``/v1/turns?batch_id=``."""
    return await existing_batch(batch_id, services)


@router.post(
    "/v1/batches/{batch_id}/cancel",
    status_code=202,
    responses={200: {"model": Batch, "description": "had ended already; unchanged"}, **problems(404)},
)
async def cancel(
    batch_id: BatchId, _query: Annotated[NoQuery, Query()], response: Response, services: ServicesDep
) -> Batch:
    """Ask every turn that is not over to stop. What runs ends within a second; what waits never begins."""
    if await cancel_batch(batch_id, services) is None:
        response.status_code = 200
    return await existing_batch(batch_id, services)


@router.get(
    "/v1/batches/{batch_id}/results",
    response_class=Response,
    responses={**lines_of(BatchResult), **problems(404)},
)
async def read_results(
    batch_id: BatchId, services: ServicesDep, query: Annotated[ResultsQuery, Query()]
) -> StreamingResponse:
    """The turns that are over by now, in the order in which they were posted: a JSON object a line."""
    first = await first_results(batch_id, query.after, services)
    return StreamingResponse(result_lines(services.batches, batch_id, first), media_type=JSON_LINES)
