"""Turns: post, fork, read, list, cancel, answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Query, Request, Response

from api_gateway.requests.json_object import digest
from api_gateway.requests.queries import TurnQuery, TurnsQuery
from api_gateway.requests.turns import ForkRequest, InputRequest, TurnRequest
from api_gateway.routes.dependencies import NoQueryDep, Posted, ServicesDep, TurnId, body_of, posted_of
from api_gateway.routes.openapi import IDEMPOTENCY_KEY, METADATA, PREFER, TRACEPARENT, body_schema, problems
from api_gateway.services import Services
from api_gateway.turns.answers import ScoreList, Turn, TurnPage, TurnWithParts
from api_gateway.turns.forking import Fork
from api_gateway.turns.idempotency import IdempotencyClaim
from api_gateway.use_cases.posting import post_turn
from api_gateway.use_cases.turn_lookup import ask_to_stop, existing, existing_turn
from api_gateway.use_cases.waiting import Waiter, wait_of

router = APIRouter(tags=["turns"])

_POSTED: Final[dict[int | str, dict[str, Any]]] = {
    200: {"model": Turn, "description": "the turn ended within Prefer: wait"},
    **problems(402, 404, 408, 409, 413, 429),
}


@router.post(
    "/v1/turns",
    status_code=202,
    response_model=Turn,
    responses=_POSTED,
    openapi_extra=body_schema(TurnRequest, IDEMPOTENCY_KEY, PREFER, TRACEPARENT),
)
async def create_turn(
    request: Request,
    response: Response,
    services: ServicesDep,
    _query: NoQueryDep,
    posted: Annotated[Posted[TurnRequest], Depends(posted_of(TurnRequest))],
) -> Turn:
    """Enqueue a turn. ``Prefer: wait=20`` waits for its end; ``Idempotency-Key`` makes repeats harmless for a day."""
    return await _post(request, response, services, posted.value, posted.claim)


@router.post(
    "/v1/turns/{turn_id}/fork",
    status_code=202,
    response_model=Turn,
    responses=_POSTED,
    openapi_extra=body_schema(ForkRequest, IDEMPOTENCY_KEY, PREFER, TRACEPARENT),
)
async def fork_turn(
    turn_id: TurnId,
    request: Request,
    response: Response,
    services: ServicesDep,
    _query: NoQueryDep,
    posted: Annotated[Posted[ForkRequest], Depends(posted_of(ForkRequest))],
) -> Turn:
    """Enqueue a turn that goes on from a step of another turn, in a session of its own; otherwise as a post."""
    claim = posted.claim
    if claim is not None:  # the same body makes another fork of another turn
        claim = replace(claim, digest=digest({"fork": turn_id, "body": claim.digest}))
    return await _post(request, response, services, Fork(turn_id=turn_id, request=posted.value), claim)


async def _post(
    request: Request, response: Response, services: Services, wanted: TurnRequest | Fork, claim: IdempotencyClaim | None
) -> Turn:
    wait_s = wait_of(request.headers.getlist("prefer"))
    waiter = Waiter(wait_s=wait_s, has_gone=request.is_disconnected)
    turn, response.status_code = await post_turn(wanted, claim, waiter, services)
    response.headers["Location"] = f"/v1/turns/{turn.id}"
    if wait_s > 0:
        response.headers["Preference-Applied"] = f"wait={wait_s:g}"
    return turn


@router.get("/v1/turns", responses=problems(), openapi_extra={"parameters": [METADATA]})
async def list_turns(services: ServicesDep, query: Annotated[TurnsQuery, Query()]) -> TurnPage:
    """Turns, newest first. ``metadata.KEY=VALUE`` narrows the list to turns with that metadata.

    A page of long turns has fewer than ``limit``, but at least one; the last page is the one whose ``next`` is null.
    """
    return await services.turns.page(query)


@router.get("/v1/turns/{turn_id}", responses=problems(404))
async def read_turn(turn_id: TurnId, query: Annotated[TurnQuery, Query()], services: ServicesDep) -> TurnWithParts:
    """One turn with its calls; ``include=messages`` adds the history, ``include=scores`` the scores of its judges."""
    return existing(await services.turns.one_with(turn_id, query.parts), turn_id)


@router.get("/v1/turns/{turn_id}/scores", responses=problems(404))
async def list_scores(turn_id: TurnId, _query: NoQueryDep, services: ServicesDep) -> ScoreList:
    """The scores of a turn's judges, ordered by judge; empty until the turn has ended, or if its agent has none."""
    return existing(await services.turns.scores(turn_id), turn_id)


@router.post(
    "/v1/turns/{turn_id}/cancel",
    status_code=202,
    responses={200: {"model": Turn, "description": "the turn had already ended; unchanged"}, **problems(404)},
)
async def cancel_turn(turn_id: TurnId, _query: NoQueryDep, response: Response, services: ServicesDep) -> Turn:
    """Ask a turn to stop. The answer may still say that it runs; its work ends within a second."""
    asked = await ask_to_stop(turn_id, services)
    if asked is not None:
        return asked
    response.status_code = 200
    return await existing_turn(turn_id, services)


@router.post(
    "/v1/turns/{turn_id}/inputs",
    status_code=202,
    response_model=Turn,
    responses=problems(404, 408, 409, 413),
    openapi_extra=body_schema(InputRequest),
)
async def add_input(
    turn_id: TurnId,
    services: ServicesDep,
    _query: NoQueryDep,
    said: Annotated[InputRequest, Depends(body_of(InputRequest))],
) -> Turn:
    """Answer a turn that waits for a person: decide on one call, or deny all waiting calls with a message."""
    turn, priority = existing(await services.inputs.add(turn_id, said), turn_id)
    await services.shared.publisher.advance(turn_id, priority, services.tenant)
    return turn
