"""A turn's events: JSON pages, or a stream."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Query, Request, Response

from api_gateway.problems import invalid_at
from api_gateway.requests.fields import number_in
from api_gateway.requests.queries import EventsQuery
from api_gateway.routes.dependencies import ServicesDep, TurnId
from api_gateway.routes.openapi import problems
from api_gateway.services import Services
from api_gateway.streams.event_stream import EventStream
from api_gateway.streams.sse import HEARTBEAT, OPENING, SSE_HEADERS, framed, wants_stream
from api_gateway.streams.streamed import Streamed
from api_gateway.turns.answers import EventPage
from api_gateway.turns.heads import Head
from api_gateway.use_cases.turn_lookup import existing

router = APIRouter(tags=["events"])

_SSE: Final[dict[int | str, dict[str, Any]]] = {
    200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}},
    204: {"description": "no event follows: the turn has ended, and Last-Event-ID is its last event or beyond"},
}


@router.get("/v1/turns/{turn_id}/events", response_model=EventPage, responses={**problems(404), **_SSE})
async def list_events(
    request: Request,
    turn_id: TurnId,
    query: Annotated[EventsQuery, Query()],
    services: ServicesDep,
    last_event_id: Annotated[str | None, Header()] = None,
) -> EventPage | Response:
    """One page of events in order, or a stream of server-sent events until the turn's end.

    A page of long events has fewer than ``limit``, but at least one. ``Accept: text/event-stream`` asks for the stream,
    which starts after ``Last-Event-ID``, or after ``after``.
    """
    head = existing(await services.turns.head(turn_id), turn_id)
    if wants_stream(",".join(request.headers.getlist("accept"))):
        after = query.after if last_event_id is None else _seq(last_event_id)
        return _stream(turn_id, after, head, services)
    return await services.turns.events(turn_id, query)


def _stream(turn_id: str, after: int, head: Head, services: Services) -> Response:
    if head.has_ended and after >= head.last_seq:
        return Response(status_code=204)
    frames = _frames(services.stream_of(turn_id, after=after), services)
    return Streamed(frames, media_type="text/event-stream", headers=SSE_HEADERS)


async def _frames(stream: EventStream, services: Services) -> AsyncGenerator[str]:
    with services.shared.traffic.reading():
        async with stream.events() as events:
            yield OPENING
            async for told in events:
                yield HEARTBEAT if told is None else framed(told)


def _seq(text: str) -> int:
    try:
        return number_in(text)
    except ValueError as error:
        raise invalid_at(["header", "Last-Event-ID"], str(error)) from None
