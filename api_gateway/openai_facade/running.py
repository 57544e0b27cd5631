"""Running a turn for one of OpenAI's clients: it is made once, then waited for or followed."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, TypeAlias

from fastapi import Request
from sqlalchemy.exc import SQLAlchemyError

from api_gateway.openai_facade.from_turn import unfinished
from api_gateway.openai_facade.text_stream import Delta, Speech
from api_gateway.problems import forbid_retry
from api_gateway.requests.turns import TurnRequest
from api_gateway.services import Services
from api_gateway.streams.sse import Told
from api_gateway.turns.answers import Event, Turn
from api_gateway.turns.creation import Created, MadeTurn
from api_gateway.turns.idempotency import Earlier, IdempotencyClaim
from api_gateway.use_cases.posting import make_turn, waited_for, wake
from api_gateway.use_cases.waiting import Waiter, turn_at_rest, turn_now
from harness_worker.wire import WAITING_EVENTS, TurnStatus

LONGEST_WAIT_S: Final = 540.0
UNTOLD_WAIT_S: Final = 270.0
"""The wait for a client that does not say how long it waits, and the longest for Node's: whatever that one says, Node
itself gives up after 300 s without an answer."""

PATIENCE: Final = 0.9
"""The share of a client's patience to use: a client that gets no answer asks again, which would make another turn."""

MARGIN_S: Final = 2.0
"""How much of its patience to leave at least, in seconds: half of it for the last look at the turn after the wait."""

_LOOKED_AT: Final = WAITING_EVENTS | {"wave.completed"}

Piece: TypeAlias = Delta | Turn
"""A piece of a stream: text, or the turn, of which more calls may have ended."""


async def make_once(
    request: TurnRequest,
    http: Request,
    claim: IdempotencyClaim | None,
    services: Services,
    follows: str | None = None,
) -> Created:
    """Make the turn of a request. Once it may be stored, errors keep a client without a key from repeating the request.

    A repeat of a request with a key waits for the same turn, so such a key is never in flight.

    Raises:
        Problem: What ``make_turn`` raises.
    """
    on_commit = partial(forbid_retry, http) if claim is None else None
    return await make_turn(request, claim, services, follows=follows, on_commit=on_commit)


@asynccontextmanager
async def made(created: Created, services: Services) -> AsyncGenerator[None]:
    """A context after the turn was made: whatever the database does from then on, the client must not ask again.

    Raises:
        Problem: 504 ``turn_unfinished`` in place of any database error or timeout; the turn begins nevertheless.
    """
    try:
        yield
    except (SQLAlchemyError, TimeoutError):
        await wake(created, services)
        raise unfinished(created.made_id) from None


def client_patience(read_timeout: str | None, timeout: str | None) -> float:
    """How long to wait for a turn, in seconds.

    Args:
        read_timeout: For how many seconds the client waits for an answer, as Python's says it.
        timeout: The same as Node's says it: in whole seconds, rounded down.
    """
    waits = (_share(read_timeout, LONGEST_WAIT_S), _share(timeout, UNTOLD_WAIT_S))
    return min((wait_s for wait_s in waits if wait_s is not None), default=UNTOLD_WAIT_S)


def _share(timeout: str | None, longest_s: float) -> float | None:
    try:
        patience_s = float(timeout or "")
    except ValueError:
        return None
    if not patience_s >= 0:  # NaN is not, either
        return None
    return min(patience_s * PATIENCE, patience_s - MARGIN_S, longest_s)


def waiter_of(http: Request) -> Waiter:
    """The client of a request that has just come, as one that waits for its turn."""
    told = http.headers
    wait_s = client_patience(told.get("x-stainless-read-timeout"), told.get("x-stainless-timeout"))
    return Waiter(wait_s=wait_s, has_gone=http.is_disconnected)


async def awaited(created: Created, waiter: Waiter, services: Services) -> Turn:
    """The turn once it rests, or as it is when the client has waited long enough."""
    if isinstance(created, Earlier):
        return await waited_for(created.made_id, waiter, services)
    return await turn_at_rest(created.turn, waiter, services, partial(wake, created, services))


def heartbeat_s_of(waiter: Waiter, services: Services) -> float:
    """After how many seconds of silence a stream sends a heartbeat: the client may wait less than most do."""
    return min(services.shared.settings.sse_heartbeat_s, max(0.5, waiter.wait_s / 2))


async def followed(created: Created, turn: Turn, waiter: Waiter, services: Services) -> AsyncGenerator[Piece]:
    """The pieces of a turn that was just made, or found, until it rests; last come the turn and its remaining text."""
    speech = Speech(hears_hints=isinstance(created, MadeTurn))
    stream = services.stream_of(turn.id, heartbeat_s=heartbeat_s_of(waiter, services))
    was_missed = False
    with services.shared.traffic.reading():
        async with stream.events() as events:
            await wake(created, services)
            async for told in events:
                if told is not None and (delta := speech.hear(told.type, _data(told))):
                    yield delta
                is_looked_at = was_missed if told is None else told.type in _LOOKED_AT
                if is_looked_at:
                    before, turn = turn, await turn_now(turn, waiter, services)
                    was_missed = turn is before  # the database gave none: look again with the next heartbeat
                    yield turn
                    if turn.status is TurnStatus.REQUIRES_ACTION or turn.subagent_actions:
                        break
        if stream.is_refused:
            return
        turn = await turn_now(turn, waiter, services)
        yield turn
        if delta := speech.end(turn):
            yield delta


def _data(told: Told) -> dict[str, Any]:
    return told.data if isinstance(told, Event) else json.loads(told.data)
