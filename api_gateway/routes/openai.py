"""The routes for OpenAI's clients: agents as models (docs/how-to/use-the-openai-client.md)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from functools import partial
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Request

from api_gateway.openai_facade.answers import AgentResponse, Completion, ModelCard, ModelList
from api_gateway.openai_facade.from_turn import completion_of, response_of
from api_gateway.openai_facade.requests import ChatRequest, ResponseRequest
from api_gateway.openai_facade.running import awaited, followed, heartbeat_s_of, made, make_once, waiter_of
from api_gateway.openai_facade.streams import chat_frames, response_frames, with_heartbeats
from api_gateway.openai_facade.to_turn import turn_of_chat, turn_of_response
from api_gateway.problems import FieldProblem, Problem
from api_gateway.routes.dependencies import NoQueryDep, Posted, ServicesDep, TurnId, posted_of, turn_id_of
from api_gateway.routes.openapi import IDEMPOTENCY_KEY, TRACEPARENT, body_schema, openai_errors
from api_gateway.services import Services
from api_gateway.streams.sse import SSE_HEADERS
from api_gateway.streams.streamed import Streamed
from api_gateway.turns.new_turns import unknown_agents
from api_gateway.use_cases.posting import wake
from api_gateway.use_cases.turn_lookup import ask_to_stop, existing_terms, existing_turn
from api_gateway.use_cases.waiting import Waiter, turn_at_rest

STOP_WAIT_S: Final = 5.0
"""How long the answer to a cancel waits at most for the turn's end, which takes about a second."""

_STREAM: Final[dict[int | str, dict[str, Any]]] = {
    200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}},
}
router = APIRouter(tags=["openai"])


@router.get("/v1/models", responses=openai_errors())
async def list_models(services: ServicesDep, _query: NoQueryDep) -> ModelList:
    """Every agent, as a model."""
    return ModelList(data=await _models(services))


@router.get("/v1/models/{model:name}", responses=openai_errors(404))
async def read_model(model: str, services: ServicesDep, _query: NoQueryDep) -> ModelCard:
    """One agent, as a model."""
    models = await _models(services)
    found = next((each for each in models if each.id == model), None)
    if found is None:
        raise unknown_agents({model: ["path", "model"]}, [each.id for each in models[:20]])
    return found


async def _models(services: Services) -> list[ModelCard]:
    return [ModelCard(id=name, created=int(at)) for name, at in (await services.agents.published()).items()]


@router.post(
    "/v1/responses",
    response_model=AgentResponse,
    responses={**openai_errors(402, 404, 408, 409, 413, 429, 504), **_STREAM},
    openapi_extra=body_schema(ResponseRequest, IDEMPOTENCY_KEY, TRACEPARENT),
)
async def create_response(
    http: Request,
    services: ServicesDep,
    _query: NoQueryDep,
    posted: Annotated[Posted[ResponseRequest], Depends(posted_of(ResponseRequest))],
) -> AgentResponse | Streamed:
    """Have an agent answer. If the turn outlasts the wait, the status is ``in_progress``; read the response later."""
    asked, waiter = posted.value, waiter_of(http)
    before = asked.previous_response_id
    session_id = await _session_of(before, services) if before is not None else None
    request = turn_of_response(asked, session_id)
    created = await make_once(request, http, posted.claim, services, before)
    async with made(created, services):
        terms = await existing_terms(created.made_id, services)  # after the wait, the database may be away
        if asked.stream:
            turn = await existing_turn(created.made_id, services)
            frames = response_frames(turn, terms, followed(created, turn, waiter, services))
            return _streaming(frames, heartbeat_s_of(waiter, services))
        if asked.background:
            await wake(created, services)
            return response_of(await existing_turn(created.made_id, services), terms)
        return response_of(await awaited(created, waiter, services), terms)


async def _session_of(response_id: str, services: Services) -> str:
    try:
        return (await existing_turn(await turn_id_of(response_id), services)).session_id
    except Problem as missing:
        place = FieldProblem(loc=["body", "previous_response_id"], msg=missing.detail)
        raise Problem(missing.code, missing.detail, errors=[place]) from None


@router.get("/v1/responses/{turn_id}", responses=openai_errors(404))
async def read_response(turn_id: TurnId, services: ServicesDep, _query: NoQueryDep) -> AgentResponse:
    """Any turn as a response, however it was posted."""
    return response_of(await existing_turn(turn_id, services), await existing_terms(turn_id, services))


@router.post("/v1/responses/{turn_id}/cancel", responses=openai_errors(404))
async def cancel_response(http: Request, turn_id: TurnId, services: ServicesDep, _query: NoQueryDep) -> AgentResponse:
    """Ask a turn to stop, and wait some seconds for its end."""
    turn = await existing_turn(turn_id, services)
    terms = await existing_terms(turn_id, services)
    if not turn.status.is_final:
        waiter = Waiter(wait_s=STOP_WAIT_S, has_gone=http.is_disconnected, until_end=True)
        turn = await turn_at_rest(turn, waiter, services, partial(ask_to_stop, turn_id, services))
    return response_of(turn, terms)


@router.post(
    "/v1/chat/completions",
    response_model=Completion,
    responses={**openai_errors(402, 404, 408, 409, 413, 429, 502, 504), **_STREAM},
    openapi_extra=body_schema(ChatRequest, IDEMPOTENCY_KEY, TRACEPARENT),
)
async def create_completion(
    http: Request,
    services: ServicesDep,
    _query: NoQueryDep,
    posted: Annotated[Posted[ChatRequest], Depends(posted_of(ChatRequest))],
) -> Completion | Streamed:
    """Have an agent answer the last message; it reads those before it as a transcript."""
    asked, waiter = posted.value, waiter_of(http)
    request = turn_of_chat(asked)
    created = await make_once(request, http, posted.claim, services)
    async with made(created, services):
        if not asked.stream:
            return completion_of(await awaited(created, waiter, services))
        turn = await existing_turn(created.made_id, services)
    tells_usage = asked.stream_options is not None and asked.stream_options.include_usage is True
    frames = chat_frames(turn, followed(created, turn, waiter, services), tells_usage=tells_usage)
    return _streaming(frames, heartbeat_s_of(waiter, services))


def _streaming(frames: AsyncGenerator[str], heartbeat_s: float) -> Streamed:
    beaten = with_heartbeats(frames, heartbeat_s)
    return Streamed(beaten, media_type="text/event-stream", headers=SSE_HEADERS)
